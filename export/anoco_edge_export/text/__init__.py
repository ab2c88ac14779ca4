"""The text side of CLIP: prompts about good and damaged objects become features of a bundle.

Tokens need the vocabulary that open_clip ships, features need torch. The file that is made needs
neither.
"""

from anoco_edge_export.text.features import TokenizedPrompts, prompt_file, tokenize_prompts

__all__ = ["TokenizedPrompts", "prompt_file", "tokenize_prompts"]
