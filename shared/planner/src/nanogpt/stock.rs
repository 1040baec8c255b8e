//! nanoGPT's stock configs by name, for commands that name one without its text.
//!
//! The values are those of karpathy/nanoGPT's `config` directory at commit 3adf61e154c3fe3fca428ad6bc3818b27a3b8291 (12
//! November 2025), compared file by file. The comments are Headroom's.

/// A config of nanoGPT's `config` directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stock {
    /// File name, such as `train_gpt2.py`.
    pub name: &'static str,
    /// Model, batch and schedule, as a config.
    pub run: &'static str,
    /// Names, directories and rates, which do not affect memory, as a config.
    pub rest: &'static str,
}

impl Stock {
    /// Returns the whole config.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}{}", self.run, self.rest)
    }
}

/// GPT-2 124M from scratch.
pub const TRAIN_GPT2: Stock = Stock {
    name: "train_gpt2.py",
    run: "# GPT-2 124M from scratch, as nanoGPT's train_gpt2 sets it\n\
          batch_size = 12\n\
          block_size = 1024\n\
          gradient_accumulation_steps = 5 * 8\n\
          \n\
          n_layer = 12\n\
          n_head = 12\n\
          n_embd = 768\n\
          \n\
          max_iters = 600000\n\
          eval_interval = 1000\n\
          eval_iters = 200\n",
    rest: "wandb_log = True\n\
           wandb_project = 'owt'\n\
           wandb_run_name = 'gpt2-124M'\n\
           lr_decay_iters = 600000\n\
           log_interval = 10\n\
           weight_decay = 1e-1\n",
};

/// A model of 10.7 million parameters on the characters of Shakespeare's works.
pub const TRAIN_SHAKESPEARE_CHAR: Stock = Stock {
    name: "train_shakespeare_char.py",
    run: "# A small model on Shakespeare's characters\n\
          dataset = 'shakespeare_char'\n\
          gradient_accumulation_steps = 1\n\
          batch_size = 64\n\
          block_size = 256\n\
          \n\
          n_layer = 6\n\
          n_head = 6\n\
          n_embd = 384\n\
          dropout = 0.2\n\
          \n\
          max_iters = 5000\n\
          eval_interval = 250\n\
          eval_iters = 200\n",
    rest: "out_dir = 'out-shakespeare-char'\n\
           log_interval = 10\n\
           always_save_checkpoint = False\n\
           wandb_log = False\n\
           wandb_project = 'shakespeare-char'\n\
           wandb_run_name = 'mini-gpt'\n\
           learning_rate = 1e-3\n\
           lr_decay_iters = 5000\n\
           min_lr = 1e-4\n\
           beta2 = 0.99\n\
           warmup_iters = 100\n",
};

/// GPT-2 XL, finetuned on Shakespeare's works.
pub const FINETUNE_SHAKESPEARE: Stock = Stock {
    name: "finetune_shakespeare.py",
    run: "# OpenAI's GPT-2 XL, finetuned on Shakespeare\n\
          init_from = 'gpt2-xl'\n\
          dataset = 'shakespeare'\n\
          batch_size = 1\n\
          gradient_accumulation_steps = 32\n\
          \n\
          max_iters = 20\n\
          eval_interval = 5\n\
          eval_iters = 40\n\
          decay_lr = False\n",
    rest: "out_dir = 'out-shakespeare'\n\
           wandb_log = False\n\
           wandb_project = 'shakespeare'\n\
           always_save_checkpoint = False\n\
           learning_rate = 3e-5\n",
};

const fn evaluation(name: &'static str, run: &'static str) -> Stock {
    Stock { name, run, rest: "wandb_log = False\n" }
}

/// Every config of the directory.
pub const STOCK: [Stock; 7] = [
    TRAIN_GPT2,
    TRAIN_SHAKESPEARE_CHAR,
    FINETUNE_SHAKESPEARE,
    evaluation("eval_gpt2.py", "batch_size = 8\neval_iters = 500\neval_only = True\ninit_from = 'gpt2'\n"),
    evaluation(
        "eval_gpt2_medium.py",
        "batch_size = 8\neval_iters = 500\neval_only = True\ninit_from = 'gpt2-medium'\n",
    ),
    evaluation("eval_gpt2_large.py", "batch_size = 8\neval_iters = 500\neval_only = True\ninit_from = 'gpt2-large'\n"),
    evaluation("eval_gpt2_xl.py", "batch_size = 8\neval_iters = 500\neval_only = True\ninit_from = 'gpt2-xl'\n"),
];

/// Returns the stock config that a path names: the bare file name, or a file in a directory `config`.
#[must_use]
pub fn find(path: &str) -> Option<&'static Stock> {
    let mut parts = path.rsplit(['/', '\\']).filter(|part| *part != ".");
    let name = parts.next()?;
    let is_in_folder = parts.next().is_none_or(|folder| folder == "config");
    STOCK.iter().find(|stock| is_in_folder && stock.name == name)
}

/// Returns the path of the stock config that a command line names, with its ending: the bare name or `config/NAME`, with
/// or without `.py`. Any other path is that of a file.
#[must_use]
pub fn given(path: &str) -> Option<String> {
    let name = path.strip_prefix("config/").or_else(|| path.strip_prefix(r"config\")).unwrap_or(path);
    let stem = name.strip_suffix(".py").unwrap_or(name);
    let is_stock = STOCK.iter().any(|stock| stock.name.strip_suffix(".py") == Some(stem));
    is_stock.then(|| format!("{}.py", path.strip_suffix(".py").unwrap_or(path)))
}

#[cfg(test)]
mod tests {
    use super::super::{Severity, Source, Value, read};
    use super::*;

    #[test]
    fn a_path_names_a_stock_config_by_file_and_folder() {
        for path in [
            "config/eval_gpt2.py",
            "./config/eval_gpt2.py",
            "eval_gpt2.py",
            "/home/me/nanoGPT/config/eval_gpt2.py",
            r"nanoGPT\config\eval_gpt2.py",
        ] {
            assert_eq!(find(path).map(|stock| stock.name), Some("eval_gpt2.py"), "{path}");
        }
        for path in ["", "config/", "experiments/train_gpt2.py", "config/train_gpt3.py", "config/eval_gpt2", "config"] {
            assert_eq!(find(path), None, "{path}");
        }
    }

    #[test]
    fn only_a_bare_name_or_one_in_config_is_a_stock_config_by_itself() {
        for (path, named) in [
            ("config/eval_gpt2.py", "config/eval_gpt2.py"),
            ("config/eval_gpt2", "config/eval_gpt2.py"),
            (r"config\eval_gpt2.py", r"config\eval_gpt2.py"),
            ("eval_gpt2.py", "eval_gpt2.py"),
            ("eval_gpt2", "eval_gpt2.py"),
        ] {
            assert_eq!(given(path).as_deref(), Some(named), "{path}");
        }
        for path in [
            "",
            "/root/nanoGPT/config/eval_gpt2.py",
            "nanoGPT/config/eval_gpt2.py",
            "./config/eval_gpt2.py",
            "../eval_gpt2.py",
            "config/config/eval_gpt2.py",
            "eval_gpt2.py.py",
            "eval_gpt2.txt",
        ] {
            assert_eq!(given(path), None, "{path}");
        }
    }

    #[test]
    fn a_named_stock_config_is_read_with_a_note_and_no_problem() {
        for stock in &STOCK {
            let settings = read(&[Source::Named { name: format!("config/{}", stock.name) }]);
            let problems = settings.problems.as_slice();
            assert_eq!(problems.len(), 1, "{}: {problems:?}", stock.name);
            assert_eq!(problems[0].severity, Severity::Note);
            assert!(settings.is_complete() && settings.unknown.is_empty(), "{}", stock.name);
        }
    }

    /// Compares with the right-hand sides of nanoGPT's files at commit 3adf61e154c3fe3fca428ad6bc3818b27a3b8291. The
    /// `wandb_run_name` of finetune_shakespeare.py is omitted because it contains the time.
    #[test]
    fn stock_configs_set_the_values_of_nanogpt() {
        const FILES: [(&str, &str); 7] = [
            (
                "train_gpt2.py",
                "wandb_log = True; wandb_project = 'owt'; wandb_run_name='gpt2-124M'; batch_size = 12; block_size = 1024; \
                 gradient_accumulation_steps = 5 * 8; max_iters = 600000; lr_decay_iters = 600000; eval_interval = 1000; \
                 eval_iters = 200; log_interval = 10; weight_decay = 1e-1",
            ),
            (
                "train_shakespeare_char.py",
                "out_dir = 'out-shakespeare-char'; eval_interval = 250; eval_iters = 200; log_interval = 10; \
                 always_save_checkpoint = False; wandb_log = False; wandb_project = 'shakespeare-char'; \
                 wandb_run_name = 'mini-gpt'; dataset = 'shakespeare_char'; gradient_accumulation_steps = 1; \
                 batch_size = 64; block_size = 256; n_layer = 6; n_head = 6; n_embd = 384; dropout = 0.2; \
                 learning_rate = 1e-3; max_iters = 5000; lr_decay_iters = 5000; min_lr = 1e-4; beta2 = 0.99; \
                 warmup_iters = 100",
            ),
            (
                "finetune_shakespeare.py",
                "out_dir = 'out-shakespeare'; eval_interval = 5; eval_iters = 40; wandb_log = False; \
                 wandb_project = 'shakespeare'; dataset = 'shakespeare'; init_from = 'gpt2-xl'; \
                 always_save_checkpoint = False; batch_size = 1; gradient_accumulation_steps = 32; max_iters = 20; \
                 learning_rate = 3e-5; decay_lr = False",
            ),
            ("eval_gpt2.py", EVALUATION),
            ("eval_gpt2_medium.py", EVALUATION),
            ("eval_gpt2_large.py", EVALUATION),
            ("eval_gpt2_xl.py", EVALUATION),
        ];
        const EVALUATION: &str = "batch_size = 8; eval_iters = 500; eval_only = True; wandb_log = False";
        for (name, assignments) in FILES {
            let mut expected = assignments.replace("; ", "\n");
            if let Some(size) = name.strip_prefix("eval_") {
                let model = size.trim_end_matches(".py").replace('_', "-");
                expected.push_str(&format!("\ninit_from = '{model}'"));
            }
            // The file uses train.py's defaults for the model; Headroom's text lists them.
            if name == "train_gpt2.py" {
                expected.push_str("\nn_layer = 12\nn_head = 12\nn_embd = 768");
            }
            let values = |source: Source| -> Vec<(String, Value)> {
                read(&[source]).values.iter().map(|(name, setting)| (name.clone(), setting.value.clone())).collect()
            };
            let stock = values(Source::Named { name: name.to_owned() });
            assert_eq!(stock, values(Source::File { name: name.to_owned(), text: expected }), "{name}");
        }
    }

    #[test]
    fn an_override_wins_over_a_stock_config() {
        let mut settings = read(&[
            Source::Named { name: "config/train_shakespeare_char.py".into() },
            Source::Override { text: "--batch_size=8".into() },
        ]);
        assert_eq!((settings.get_u64("batch_size"), settings.get_u64("n_layer")), (Some(8), Some(6)));
    }
}
