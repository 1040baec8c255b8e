//! Tests of the classification of pasted texts.

use super::*;

fn over(text: &str) -> Source {
    Source::Override { text: text.into() }
}

fn printed(text: &str) -> Source {
    Source::Printed { text: text.into() }
}

fn named(name: &str) -> Source {
    Source::Named { name: name.into() }
}

#[track_caller]
fn check_command(text: &str, world_size: Option<u64>, sources: &[Source]) {
    let pasted = from_pasted_text("pasted", text);
    assert_eq!(pasted.kind, PastedKind::Command, "{text}");
    assert_eq!(pasted.sources, sources, "{text}");
    assert_eq!(pasted.world_size, world_size, "{text}");
}

#[test]
fn python_commands() {
    let sources = [named("config/x.py"), over("--batch_size=64"), over("--n_layer=6")];
    for text in [
        "python train.py config/x.py --batch_size=64 --n_layer=6",
        "$ python3 train.py config/x.py --batch_size=64 \\\n    --n_layer=6\n",
        "# run it\n\nCUDA_VISIBLE_DEVICES=0 nohup python -u train.py config/x.py \\\r\n --batch_size=64 --n_layer=6 > log.txt 2>&1 &",
        "cd nanoGPT && python ./train.py config/x.py '--batch_size=64' --n_layer=\"6\" | tee out.log",
        "./train.py config/x.py --batch_size=64 --n_layer=6 # test",
        "```sh\npython train.py config/x.py --batch_size=64 --n_layer=6\n```",
        "!python train.py config/x.py --batch_size=64 --n_layer=6",
        "! cd nanoGPT && python train.py config/x.py --batch_size=64 --n_layer=6",
        "%%bash\npython train.py config/x.py --batch_size=64 --n_layer=6",
        "%run train.py config/x.py --batch_size=64 --n_layer=6",
        "uv run train.py config/x.py --batch_size=64 --n_layer=6",
        "uv run --with torch python train.py config/x.py --batch_size=64 --n_layer=6",
    ] {
        check_command(text, None, &sources);
    }
    check_command("--batch_size=64 --n_layer=6", None, &sources[1..]);
    check_command(r"python .\train.py config\x.py", None, &[named(r"config\x.py")]);
    check_command("python train.py --wandb_run_name='my run'", None, &[over("--wandb_run_name=my run")]);
}

#[test]
fn launcher_sets_the_number_of_processes() {
    for (text, size) in [
        ("torchrun --standalone --nproc_per_node=4 train.py", Some(4)),
        ("torchrun --nproc-per-node 8 --nnodes 2 --node_rank=0 train.py", Some(16)),
        ("OMP_NUM_THREADS=1 torchrun --nproc_per_node=8 --nnodes=2:2 --master_port=1234 train.py", Some(16)),
        ("python -m torch.distributed.launch --nproc_per_node=2 train.py", Some(2)),
        ("torchrun train.py", Some(1)),
        ("torchrun --nproc_per_node=gpu train.py", None),
        ("torchrun --nnodes=1:4 --nproc_per_node=8 train.py", None),
        ("uv run torchrun --nproc_per_node=2 train.py", Some(2)),
        ("deepspeed --num_gpus=4 --num_nodes 2 train.py", Some(8)),
        ("deepspeed train.py", None),
        ("accelerate launch --multi_gpu --num_processes 4 train.py", Some(4)),
        ("accelerate launch train.py", None),
    ] {
        check_command(text, size, &[]);
    }
    let pasted = from_pasted_text("pasted", "torchrun --nproc_per_node=gpu train.py");
    assert_eq!(
        pasted.problems.as_slice()[0].to_string(),
        "--nproc_per_node=gpu: the number of processes for `gpu` depends on that machine\n\nhint: set \
         --nproc_per_node= to a number"
    );
}

#[test]
fn config_is_read_unchanged() {
    for text in [
        "# $ torchrun --standalone --nproc_per_node=8 train.py\nbatch_size = 4\n",
        "batch_size = 4",
        "batch_size = 4; x='",
    ] {
        let pasted = from_pasted_text("mine.py", text);
        assert_eq!(pasted.kind, PastedKind::Config);
        assert_eq!(pasted.sources, [Source::File { name: "mine.py".into(), text: text.into() }]);
    }
    let fenced = from_pasted_text("mine.py", "```python\nbatch_size = 4\n```").read();
    assert_eq!(fenced.value("batch_size"), Some(Value::Int(4)));
    assert_eq!((fenced.values["batch_size"].origin.line, fenced.problems.as_slice().len()), (2, 0));
}

const LOG: &str = "$ torchrun --nproc_per_node=2 train.py config/x.py --batch_size=64 --out_dir=7up\n\
    Overriding config with config/x.py:\n\
    # a model\n\
    n_layer = 6\n\
    dropout = 0,2\n\
    \n\
    Overriding: batch_size = 64\n\
    Overriding: dataset = tiny\n\
    Overriding: out_dir = 7\n\
    Overriding config with config/x.py:\n\
    # a model\n\
    n_layer = 6\n\
    dropout = 0,2\n\
    \n\
    Overriding: batch_size = 64\n\
    tokens per iteration will be: 768\n\
    found vocab_size = 65 (inside data/tiny/meta.pkl)\n\
    n_head = 3\n\
    iter 0: loss 10.8458, time 2609.02ms, mfu -100.00%\n";

#[test]
fn a_log_gives_the_config_and_the_arguments() {
    let pasted = from_pasted_text("pasted", LOG);
    assert_eq!(pasted.kind, PastedKind::Log);
    assert_eq!(pasted.world_size, Some(2));
    let text = "# a model\nn_layer = 6\ndropout = 0,2\n\n".into();
    assert_eq!(
        pasted.sources,
        [
            Source::File { name: "config/x.py".into(), text },
            printed("--batch_size=64"),
            printed("--dataset=tiny"),
            printed("--out_dir='7'"),
            printed("--vocab_size=65"),
        ]
    );
    let mut settings = pasted.read();
    assert_eq!(settings.get_u64("n_layer"), Some(6));
    assert_eq!(settings.get_u64("n_head"), Some(12));
    assert_eq!(settings.get_str("out_dir").as_deref(), Some("7"));
    assert_eq!(settings.vocab_size(), 65);
    assert_eq!(settings.get_f64("dropout"), Some(0.0));
    let said: Vec<String> = settings.problems.as_slice().iter().map(ToString::to_string).collect();
    assert_eq!(said, ["config/x.py:3:11: dropout is 0,2, but it must be a number"]);
}

#[test]
fn keys_of_a_fork_are_errors_in_its_command_and_none_in_its_log() {
    let stops = |text: &str| from_pasted_text("pasted", text).read().problems.first_stop().cloned();
    let stop = stops("python train.py --mine=3").expect("an error");
    assert_eq!(stop.message.to_string(), "nanoGPT stops: ValueError: Unknown config key: mine");
    assert_eq!(stops("Overriding: mine = 3\ntokens per iteration will be: 1\n"), None);
    let log = "$ torchrun --nproc_per_node=2 my_train.py --mine=3\nOverriding: mine = 3\n";
    assert_eq!((stops(log), from_pasted_text("pasted", log).world_size), (None, Some(2)));
}

#[test]
fn only_train_py_is_a_training_run() {
    for (text, script) in [
        ("python main.py", "main.py"),
        ("cd nanoGPT && python3 -u ./sample.py --out_dir=out", "sample.py"),
        ("python finetune.py --model meta-llama/Llama-2-7b --batch_size 4", "finetune.py"),
        ("torchrun --nproc_per_node=8 run_clm.py --model_name_or_path meta-llama/Llama-2-7b-hf", "run_clm.py"),
    ] {
        let pasted = from_pasted_text("pasted", text);
        let message = format!("{script} is not nanoGPT's train.py; Headroom plans runs of nanoGPT");
        assert_eq!((pasted.kind, pasted.sources.len()), (PastedKind::Unsupported, 0), "{text}");
        assert_eq!(pasted.problems.as_slice()[0].message.to_string(), message);
        assert!(!pasted.read().is_complete(), "{text}");
    }
    check_command("python data/prepare.py && python train.py --n_layer=6", None, &[over("--n_layer=6")]);
}

#[test]
fn value_after_a_space_is_no_file() {
    let text = "python train.py --batch_size 64 config/x.py --compile --n_layer=6 12 --model meta/llama";
    let sources = ["--batch_size 64", "--compile", "--n_layer=6", "12", "--model meta/llama"].map(over);
    let [batch_size, compile, n_layer, number, model] = sources;
    check_command(text, None, &[batch_size, named("config/x.py"), compile, n_layer, number, model]);
    let settings = from_pasted_text("pasted", "python train.py --batch_size 64").read();
    let said: Vec<String> = settings.problems.as_slice().iter().map(ToString::to_string).collect();
    assert_eq!(said, ["--batch_size 64: nanoGPT stops: this argument has no `=`\n\nhint: --batch_size=64"]);
    assert!(!settings.is_complete() && settings.unread.is_empty());
}

#[test]
fn vocabulary_is_no_argument_but_a_comment() {
    let settings = from_pasted_text("pasted", "python train.py --vocab_size=65").read();
    let stop = settings.problems.first_stop().expect("an error");
    assert_eq!(stop.message.to_string(), "nanoGPT stops: ValueError: Unknown config key: vocab_size");
    let text = format!("{VOCABULARY_COMMENT}65\npython train.py --n_layer=6");
    let mut settings = from_pasted_text("pasted", &text).read();
    assert_eq!((settings.get_u64("vocab_size"), settings.problems.first_stop()), (Some(65), None));
    // A variable of a config is a name that the configurator knows.
    let text = "python train.py a.py --vocab_size=65\n\n# a.py\nvocab_size = 64\n";
    assert_eq!(from_pasted_text("pasted", text).read().problems.first_stop(), None);
}

#[test]
fn a_log_of_a_run_with_nothing_changed_is_one() {
    let text = "$ torchrun --nproc_per_node=2 train.py\ntokens per iteration will be: 491,520\n";
    let pasted = from_pasted_text("pasted", text);
    assert_eq!((pasted.kind, pasted.world_size, pasted.sources.len()), (PastedKind::Log, Some(2), 0));
    assert_eq!(pasted.read().get_u64("batch_size"), Some(12));
}

#[test]
fn a_config_whose_text_is_missing_is_said() {
    let settings = from_pasted_text("pasted", "python train.py config/x.py").read();
    assert_eq!(
        settings.problems.as_slice()[0].to_string(),
        "config/x.py: this config was not read\n\nhint: open the file, or paste its text"
    );
}

#[test]
fn an_argument_on_its_own_line_continues_the_command() {
    let sources = [over("--batch_size=8"), over("--n_layer=6")];
    for text in
        ["python train.py --batch_size=8\n--n_layer=6\n", "python train.py\r\n  --batch_size=8 \r\n  --n_layer=6"]
    {
        check_command(text, None, &sources);
    }
    check_command("--batch_size=8\n--n_layer=6", None, &sources);
}

#[test]
fn a_second_command_is_named_as_unread() {
    for text in [
        "python train.py --batch_size=8 && python train.py --batch_size=64",
        "python train.py --batch_size=8; python train.py --batch_size=64; python train.py --batch_size=64",
        "python train.py --batch_size=8\npython train.py --batch_size=64\n",
    ] {
        let settings = from_pasted_text("pasted", text).read();
        assert_eq!(settings.value("batch_size"), Some(Value::Int(8)), "{text}");
        let said: Vec<String> = settings.problems.as_slice().iter().map(ToString::to_string).collect();
        let expected = "command line: `python train.py --batch_size=64` is not read by Headroom";
        assert_eq!((said.as_slice(), settings.is_complete()), (&[expected.to_owned()][..], true), "{text}");
    }
    let alone = from_pasted_text("pasted", "python data/prepare.py && python train.py | tee train.py.log").read();
    assert!(alone.problems.as_slice().is_empty());
}

#[test]
fn config_with_an_error_message_is_read_without_it() {
    let message =
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of";
    let traceback = format!(
        "Traceback (most recent call last):\n  File \"train.py\", line 301, in <module>\n    logits, loss = model(X, Y)\n\
         {message}\n"
    );
    for text in [
        format!("batch_size = 64\n{message}\n"),
        format!("{message}\nbatch_size = 64\n"),
        format!("batch_size = 64\n{traceback}"),
        format!("{traceback}batch_size = 64\n"),
    ] {
        let settings = from_pasted_text("text", &text).read();
        assert_eq!(settings.value("batch_size"), Some(Value::Int(64)), "{text}");
        assert!(settings.problems.first_stop().is_none(), "{text}");
    }
    let printed = "tokens per iteration will be: 2,621,440\nnumber of parameters: 123.59M\n";
    for text in [
        format!("batch_size = 64\n{printed}{message}\n"),
        format!("{printed}{traceback}batch_size = 64\n"),
        format!(
            "batch_size = 64\niter 0: loss 10.98, time 5000ms\nstep 2000: train loss 3.1, val loss 3.2\n{message}\n"
        ),
        format!("python train.py config/train_gpt2.py --batch_size=64\n{printed}{message}\n"),
        format!("$ python train.py --batch_size=64\n{printed}{message}\n"),
        format!("{message}\npython train.py --batch_size=64\n"),
        format!("{traceback}\n$ python train.py --batch_size=64\n"),
    ] {
        let settings = from_pasted_text("text", &text).read();
        assert_eq!(settings.value("batch_size"), Some(Value::Int(64)), "{text}");
        assert!(settings.problems.first_stop().is_none(), "{text}");
    }
    for text in [message, &traceback] {
        assert!(from_pasted_text("text", text).read().found_nothing(), "{text}");
    }
    let comment = "batch_size = 64  # CUDA out of memory at 128\n";
    assert_eq!(from_pasted_text("text", comment).read().value("batch_size"), Some(Value::Int(64)));
}
