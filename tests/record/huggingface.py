"""`transformers.Trainer` on a model of random weights, as tests/golden/measured/models/measure.py runs it on a GPU."""

import tempfile

import torch


def train(row, recorder):
    """Runs the training of a row, and marks the ends of its phases. Returns what belongs into the row besides its
    arguments."""
    import transformers
    from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments
    from transformers.utils import import_utils

    # For fake tensors, transformers would take the branches of torch.export.
    import_utils.is_fake_tensor = lambda tensor: False
    mark = recorder.mark
    if row.get("attn") == "flash_attention_2":
        import flash_attn_2

        flash_attn_2.patch(recorder.gpu)

    config = getattr(transformers, row["class"])(**row["config"])
    attention = row.get("attn", "sdpa")
    config._attn_implementation = attention
    facts = {key: value for key, value in config.to_dict().items() if isinstance(value, (int, float, str, bool, list))}
    torch.zeros(1, device="cuda")
    mark("context")
    with torch.device("cuda"):
        dtype = getattr(torch, row.get("weights", "float32"))
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    model.config.use_cache = False
    mark("init")
    if row.get("lora"):
        from peft import LoraConfig, get_peft_model

        if row.get("gc"):
            model.enable_input_require_grads()
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **row["lora"]))
        mark("lora")
    batch, length, vocabulary = row["batch"], row["length"], config.vocab_size

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 4096

        def __getitem__(self, index):
            ids = torch.randint(vocabulary, (length,))
            item = dict(input_ids=ids, labels=ids.clone())
            return item | (dict(attention_mask=torch.ones(length, dtype=torch.long)) if row.get("mask") else {})

    class Marks(TrainerCallback):
        def on_train_begin(self, *args, **kwargs):
            mark("train_begin")

        def on_substep_end(self, *args, **kwargs):
            mark("substep")

        def on_pre_optimizer_step(self, *args, **kwargs):
            mark("backward")

        def on_optimizer_step(self, *args, **kwargs):
            mark("optimizer")

        def on_step_end(self, *args, **kwargs):
            mark("step_end")

        def on_evaluate(self, *args, **kwargs):
            mark("evaluate")

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=3,
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=batch,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            dataloader_pin_memory=True,
            gradient_accumulation_steps=row.get("accum", 1),
            bf16=row.get("bf16", False),
            fp16=row.get("fp16", False),
            optim=row.get("optim", "adamw_torch_fused"),
            gradient_checkpointing="gc" in row,
            gradient_checkpointing_kwargs=dict(use_reentrant=row["gc"] == "reentrant") if "gc" in row else None,
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model,
            args=settings,
            train_dataset=Data(),
            eval_dataset=torch.utils.data.Subset(Data(), range(2 * batch)),
            callbacks=[Marks()],
        )
        trainer.train()
        mark("trained")
        if row.get("evaluate"):
            trainer.evaluate()
            mark("evaluated")
    return dict(config=facts, transformers=transformers.__version__)
