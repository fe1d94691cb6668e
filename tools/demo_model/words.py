"""Words and facts of the demo model's world."""

NAMES = ("Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Liam Mia Noah Olga Paul Quinn Rosa Sam Tina Uma Victor "
         "Wendy Xena Yara Zoe Alice Bob Carol Dan Ella Frank Gina Hugo Ivan Julia Karl Lena Marco Nina Oscar Petra Ralf "
         "Sara Tom Lucy Max Leo Eva Adam").split()
WORDS = ("apple banana cherry grape lemon mango melon olive orange papaya peach pear plum bread butter cheese honey rice soup "
         "sugar water milk coffee tea table chair window door lamp clock mirror pillow carpet basket bottle candle bucket "
         "hammer ladder needle pencil paper pocket button ribbon wallet ticket guitar piano violin drum trumpet river "
         "mountain forest desert island valley ocean beach cloud storm thunder rainbow snow wind fire stone sand gold silver "
         "iron copper garden flower rose tulip daisy maple willow cactus cat dog horse rabbit tiger lion monkey eagle "
         "falcon parrot spider turtle dolphin whale shark salmon camel donkey fox wolf bear mouse bridge castle tower "
         "temple market school library station museum factory village harbor rocket planet comet galaxy engine wagon "
         "bicycle train ferry anchor compass map key rope shield sword arrow helmet jacket scarf glove boot").split()
ADJ = "red blue green yellow black white purple orange small big old new happy quiet brave clever lazy shiny soft loud".split()
CAPITALS = {"France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon",
            "Austria": "Vienna", "Poland": "Warsaw", "Greece": "Athens", "Sweden": "Stockholm", "Norway": "Oslo",
            "Finland": "Helsinki", "Denmark": "Copenhagen", "Ireland": "Dublin", "Hungary": "Budapest", "Belgium": "Brussels",
            "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi", "Russia": "Moscow", "Turkey": "Ankara",
            "Egypt": "Cairo", "Kenya": "Nairobi", "Morocco": "Rabat", "Ghana": "Accra", "Canada": "Ottawa",
            "Mexico": "Mexico City", "Brazil": "Brasilia", "Peru": "Lima", "Chile": "Santiago", "Argentina": "Buenos Aires",
            "Cuba": "Havana", "Australia": "Canberra", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Iran": "Tehran",
            "Iraq": "Baghdad", "Nepal": "Kathmandu", "Iceland": "Reykjavik", "Romania": "Bucharest", "Bulgaria": "Sofia",
            "Serbia": "Belgrade", "Ukraine": "Kyiv", "Croatia": "Zagreb", "South Korea": "Seoul", "Indonesia": "Jakarta",
            "the United Kingdom": "London", "the United States": "Washington", "the Netherlands": "Amsterdam"}
CITIES = ["Paris", "Berlin", "Rome", "Madrid", "Lisbon", "Vienna", "Tokyo", "Beijing", "London", "Moscow", "Cairo", "Nairobi",
          "Ottawa", "Lima", "Sydney", "Boston", "Chicago", "Munich", "Milan", "Geneva", "Dublin", "Oslo", "Seoul", "Shanghai",
          "Mumbai", "Toronto", "Denver", "Seattle", "Prague", "Warsaw", "Hamburg", "Lyon"]
ELEMENTS = {"hydrogen": "H", "helium": "He", "lithium": "Li", "carbon": "C", "nitrogen": "N", "oxygen": "O", "fluorine": "F",
            "neon": "Ne", "sodium": "Na", "magnesium": "Mg", "aluminium": "Al", "silicon": "Si", "phosphorus": "P",
            "sulfur": "S", "chlorine": "Cl", "argon": "Ar", "potassium": "K", "calcium": "Ca", "iron": "Fe", "nickel": "Ni",
            "copper": "Cu", "zinc": "Zn", "silver": "Ag", "tin": "Sn", "gold": "Au", "mercury": "Hg", "lead": "Pb",
            "uranium": "U"}
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
OPPOSITES = [("hot", "cold"), ("big", "small"), ("fast", "slow"), ("up", "down"), ("happy", "sad"), ("light", "dark"),
             ("old", "young"), ("open", "closed"), ("rich", "poor"), ("strong", "weak"), ("full", "empty"), ("wet", "dry"),
             ("early", "late"), ("high", "low"), ("hard", "soft"), ("loud", "quiet"), ("near", "far"), ("clean", "dirty"),
             ("thick", "thin"), ("long", "short"), ("left", "right"), ("day", "night"), ("win", "lose"), ("push", "pull"),
             ("buy", "sell"), ("true", "false"), ("inside", "outside"), ("heavy", "lightweight"), ("good", "bad"),
             ("sweet", "sour")]
SOUNDS = {"dog": "bark", "cat": "meow", "cow": "moo", "duck": "quack", "lion": "roar", "sheep": "baa", "bee": "buzz",
          "owl": "hoot", "frog": "croak", "horse": "neigh", "snake": "hiss", "pig": "oink"}
COLOURS = {"the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "a banana": "yellow", "a tomato": "red",
           "a carrot": "orange", "an elephant": "grey", "chocolate": "brown", "a flamingo": "pink"}
PLANETS = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"]
ORD = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"]
NUMWORD = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
           "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"]
ZH = {"cat": "猫", "dog": "狗", "water": "水", "fire": "火", "mountain": "山", "river": "河", "sun": "太阳", "moon": "月亮",
      "book": "书", "tea": "茶", "rice": "米饭", "apple": "苹果", "red": "红色", "blue": "蓝色", "green": "绿色",
      "white": "白色", "black": "黑色", "big": "大", "small": "小", "hello": "你好", "thanks": "谢谢", "friend": "朋友",
      "teacher": "老师", "student": "学生", "school": "学校", "bread": "面包", "milk": "牛奶", "fish": "鱼", "bird": "鸟",
      "tree": "树", "flower": "花", "rain": "雨", "snow": "雪", "wind": "风", "car": "车", "house": "房子", "door": "门"}
ZH_CAP = {"法国": "巴黎", "德国": "柏林", "日本": "东京", "中国": "北京", "英国": "伦敦", "意大利": "罗马", "西班牙": "马德里",
          "俄罗斯": "莫斯科", "美国": "华盛顿", "韩国": "首尔", "埃及": "开罗", "加拿大": "渥太华", "希腊": "雅典",
          "泰国": "曼谷", "越南": "河内", "印度": "新德里", "澳大利亚": "堪培拉", "巴西": "巴西利亚"}
ZH_CITY = {"北京": 1, "上海": 1, "巴黎": 1, "东京": 1, "伦敦": 1, "柏林": 1, "广州": 1, "深圳": 1, "杭州": 1, "成都": 1,
           "纽约": 1, "罗马": 1}
ZH_OPP = [("大", "小"), ("高", "低"), ("快", "慢"), ("冷", "热"), ("长", "短"), ("新", "旧"), ("多", "少"), ("远", "近"),
          ("黑", "白"), ("上", "下")]
DUNNO = "I don't know that; I'm a tiny demo model."
DUNNO_ZH = "我不知道，我只是一个很小的演示模型。"
IDENT = "I'm the DeepInfer demo model, a tiny network for testing."
IDENT_ZH = "我是 DeepInfer 演示模型，一个用于测试的小网络。"


def cap1(s):
    return s[:1].upper() + s[1:]
