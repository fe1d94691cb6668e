"""Many prompts through a model at once, from Python: offline_inference.py [MODEL_DIR]. `pip install ./python` first."""
import sys

from deepinfer import LLM, SamplingParams

QUESTIONS = [
    "Which country has Cairo as its capital?",
    "Which country has Paris as its capital?",
    "Translate 猫 to English.",
]


def main():
    params = SamplingParams(temperature=0, max_tokens=60)
    with LLM(sys.argv[1] if len(sys.argv) > 1 else None) as llm:
        # Conversations: the chat template is applied, replies are parsed.
        talks = [[{"role": "user", "content": question}] for question in QUESTIONS]
        for question, output in zip(QUESTIONS, llm.chat(talks, params, thinking=False)):
            print(f"{question} -> {output.outputs[0].text}")

        # Raw prompts: text goes on where they end.
        for output in llm.generate(["Once upon a time", "In the evening they"], params):
            print(f"{output.prompt!r} -> {output.outputs[0].text!r}")

        # Piece by piece.
        with llm.stream_chat(talks[0], params, thinking=True) as stream:
            for chunk in stream:
                print(chunk.reasoning or chunk.text, end="", flush=True)
        print(f"\n{stream.output.num_generated_tokens} tokens")


if __name__ == "__main__":
    main()
