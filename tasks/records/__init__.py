"""What the stages hand to one another: questions, prompts and samples. Imports trainer.files and nothing of tasks."""
