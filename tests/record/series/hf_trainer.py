"""A small `transformers.Trainer` run, with or without PEFT's LoRA: hf_trainer.py MODEL BATCH LENGTH."""

import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Trainer, TrainingArguments

model_name, batch, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if model_name == "gpt2":
    config = GPT2Config(n_layer=4, n_head=6, n_embd=384)
else:
    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=32000,
    )
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if model_name == "llama_lora" else torch.float32)
model.config.use_cache = False
if model_name == "llama_lora":
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=["q_proj", "v_proj"]))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        ids = torch.randint(config.vocab_size, (length,))
        return dict(input_ids=ids, labels=ids.clone())


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=batch, max_steps=3, bf16=True, report_to=[], save_strategy="no"
    )
    Trainer(model, arguments, train_dataset=Data()).train()
