//! The run as a command line, for the user to copy.

use headroom_planner::{
    nanogpt::{PastedKind, Settings, Source, UnreadFile, Value, defaults, read},
    session::Options,
};

use super::{
    answer::PlannedSession,
    edit::argument,
    needs::{self, Needs},
};
use crate::text;

/// The command that starts this run. It names the configs of the text, and has a flag for each key whose value differs
/// from theirs. A config that a config executes and that was not read is named, too.
///
/// Comments above the command list what no argument sets: changes to nanoGPT's code that the plan assumes, `vocab_size`,
/// which nanoGPT reads from the data set, and values of a type that nanoGPT's configurator refuses.
pub fn command_line(answer: &PlannedSession, options: &Options) -> String {
    let needs = answer.plan().map(Needs::of_plan).unwrap_or_default();
    // The comment has its own line: some shells parse a comment behind a command as arguments.
    let mut command = needs.command_comments(options);
    if let Some(variable) = &needs.variable {
        command.push_str(variable);
        command.push(' ');
    }
    command.push_str(&launch(answer, options.world_size.max(1), needs.variable.is_some()));
    let executed = executed(answer).map(|file| quoted(&file.name));
    for argument in answer.configs.iter().map(word).chain(executed) {
        command.push(' ');
        command.push_str(&argument);
    }
    let left = push_flags(&mut command, answer, &read(&answer.configs), &[]);
    match left.is_empty() {
        true => command,
        false => needs::comment("config", Some(text::no_argument_for(text::names(left)))) + &command,
    }
}

/// The command up to its script: the text's own, if it starts that many processes. `has_variable` states that the
/// variable of PyTorch's allocator is set before it.
fn launch(answer: &PlannedSession, world_size: u64, has_variable: bool) -> String {
    let (words, own_size) = &answer.launch;
    // A script alone, such as `train.py`, is not a command in most shells.
    if words.len() > 1 && *own_size == world_size {
        let is_replaced = |word: &str| has_variable && word.starts_with("PYTORCH_") && word.contains("ALLOC_CONF=");
        let words = words.iter().filter(|word| !is_replaced(word)).map(|word| argument_word(word));
        return words.collect::<Vec<_>>().join(" ");
    }
    let script = words.last().map_or_else(|| "train.py".to_owned(), |script| quoted(script));
    match world_size {
        1 => format!("python {script}"),
        n => format!("torchrun --standalone --nproc_per_node={n} {script}"),
    }
}

/// The unread files that the text, a config, executes. A command can name them before its arguments.
fn executed(answer: &PlannedSession) -> impl Iterator<Item = &UnreadFile> {
    let is_config = answer.kind == PastedKind::Config;
    answer.resolved.settings.unread.iter().filter(move |_| is_config)
}

/// Returns whether the text is a run that a command can start, or whose error the command reproduces.
pub fn is_command(answer: &PlannedSession) -> bool {
    let settings = &answer.resolved.settings;
    // In the command, the arguments would override a file that overrides them.
    let is_in_order = executed(answer).all(|file| !file.follows_settings);
    let is_unread = !settings.unread.is_empty() && is_in_order;
    // An argument needs a text.
    let (mut unreadable, is_known) = (settings.unreadable(), |key: &str| settings.unreadable_text(key).is_some());
    let reproduces_error = settings.unread.is_empty() && settings.unreadable().next().is_some();
    answer.plan().is_some() || (is_unread || reproduces_error) && unreadable.all(is_known)
}

/// A config or an argument as a word of the command.
fn word(source: &Source) -> String {
    match source {
        Source::File { name, .. } | Source::Named { name } => quoted(name),
        Source::Override { text } | Source::Printed { text } => argument_word(text),
    }
}

/// Quotes an argument or the assignment of a variable for a shell.
fn argument_word(word: &str) -> String {
    match word.split_once('=') {
        Some((name, value)) => format!("{name}={}", quoted(value)),
        None => quoted(word),
    }
}

/// Quotes a path for a shell.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./+~".contains(c);
    if path.chars().all(is_plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// The command that runs the same training with the built-in trainer. It always has `--dataset`: without one, the
/// built-in trainer uses its own model.
pub fn train_command(answer: &PlannedSession, _: &Options) -> String {
    let mut command = String::from("headroom train");
    push_flags(&mut command, answer, &Settings::default(), &["dataset"]);
    // The built-in trainer has the key.
    if let Some(Value::Int(size)) = answer.resolved.settings.values.get("vocab_size").map(|set| &set.value) {
        command.push_str(&format!(" --vocab_size={size}"));
    }
    command
}

/// Appends the keys whose values differ from `base`, and those in `always`. A key that `base` does not set has
/// nanoGPT's default. The values of an unread config are unknown, so every key that is set beside one remains. Returns
/// the keys whose values no argument has.
fn push_flags(command: &mut String, answer: &PlannedSession, base: &Settings, always: &[&str]) -> Vec<&'static str> {
    let settings = &answer.resolved.settings;
    let mut left = Vec::new();
    for key in defaults::KEYS.iter().filter(|key| key.name != "vocab_size") {
        if settings.unreadable().any(|name| name == key.name) {
            // The invalid text is kept, so that the command reproduces the same error.
            let text = settings.unreadable_text(key.name).map(quoted).unwrap_or_default();
            command.push_str(&format!(" --{}={text}", key.name));
            continue;
        }
        let Some(value) = settings.value(key.name) else { continue };
        let is_own = settings.is_argument(key.name) || answer.kind == PastedKind::Config && settings.is_set(key.name);
        // An argument before a config is a word of the command already.
        let is_late = settings.values.get(key.name).is_some_and(|set| set.origin.source >= answer.configs.len());
        let stays = !settings.unread.is_empty() && is_own && is_late;
        if base.value(key.name).as_ref() == Some(&value) && !stays && !always.contains(&key.name) {
            continue;
        }
        match argument(key.name, &value, base) {
            Some(argument) => command.push_str(&format!(" {argument}")),
            None => left.push(key.name),
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::session::{ConfigFile, Session};
    use headroom_planner::nanogpt::from_pasted_text;
    use proptest::prelude::*;

    #[test]
    fn only_what_differs_becomes_a_flag() {
        let text = "batch_size = 12\nn_layer = 6\ndropout = 0.2\nout_dir = 'a b'\nvocab_size = 65\nmine = 3\n";
        let mut session = Session { text: text.into(), ..Session::default() };
        let answer = PlannedSession::of(&session);
        let command = command_line(&answer, &session.options);
        assert_eq!(
            command,
            "# headroom (data): vocab_size = 65\npython train.py --out_dir=\"'a b'\" --n_layer=6 --dropout=0.2"
        );
        session.options.world_size = 2;
        assert!(
            command_line(&answer, &session.options).contains("\ntorchrun --standalone --nproc_per_node=2 train.py")
        );
    }

    #[test]
    fn a_command_keeps_the_configs_that_it_names() {
        for (text, command) in [
            (
                "python train.py config/finetune_shakespeare.py --batch_size=4 --init_from=gpt2-xl",
                "python train.py config/finetune_shakespeare.py --batch_size=4",
            ),
            ("python train.py 'my config.py' --batch_size=12", "python train.py 'my config.py' --batch_size=12"),
            (
                "python train.py a.py --batch_size=4\n\n# a.py\nbatch_size = 64\nn_layer = 6\n",
                "python train.py a.py --batch_size=4",
            ),
            (
                "python train.py --batch_size=7 my_config.py --n_layer=8",
                "python train.py --batch_size=7 my_config.py --n_layer=8",
            ),
            (
                "python train.py --batch_size=7 --n_head=6 a.py --n_layer=6\n\n# a.py\nbatch_size = 64\n",
                "python train.py --batch_size=7 --n_head=6 a.py --n_layer=6",
            ),
            (
                "Overriding config with config/b.py:\nn_layer = 6\n\nOverriding: batch_size = 64\n",
                "python train.py config/b.py --batch_size=64",
            ),
        ] {
            let session = Session { text: text.into(), ..Session::default() };
            assert_eq!(command_line(&PlannedSession::of(&session), &session.options), command);
        }
    }

    #[test]
    fn command_keeps_the_launcher_and_the_script() {
        for text in [
            "uv run train.py --batch_size=4",
            "CUDA_VISIBLE_DEVICES=0 python -u nanoGPT/train.py nanoGPT/config/train_gpt2.py --batch_size=4",
            "deepspeed --num_gpus=2 train.py --batch_size=4",
            "accelerate launch --num_processes=2 'my nano/train.py' --batch_size=4",
            "deepspeed train.py --batch_size=4",
        ] {
            let mut session = Session::default();
            session.set_text(text.into());
            assert_eq!(command_line(&PlannedSession::of(&session), &session.options), text);
        }
        let mut session = Session::default();
        session.set_text("!python nanoGPT/train.py --batch_size=4".into());
        session.options.world_size = 2;
        assert_eq!(
            command_line(&PlannedSession::of(&session), &session.options),
            "torchrun --standalone --nproc_per_node=2 nanoGPT/train.py --batch_size=4"
        );
        let mut session = Session::default();
        session.set_text("PYTORCH_CUDA_ALLOC_CONF=backend:native python train.py --batch_size=4".into());
        session.set_options(|options| options.expandable_segments = true);
        assert_eq!(
            command_line(&PlannedSession::of(&session), &session.options),
            "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py --batch_size=4"
        );
    }

    #[test]
    fn opened_config_keeps_its_name_until_another_text_replaces_it() {
        let file = ConfigFile { name: "my_config.py".into(), text: "batch_size = 64\nn_layer = 6\n".into() };
        let mut session = Session::default();
        session.set_file(file.clone());
        session.set_keys(&[("batch_size", Value::Int(8))]);
        session.type_text(session.text.replace("n_layer = 6\n", ""));
        assert_eq!(session.to_file(), ("my_config.py", "batch_size = 8\n".to_owned()));
        let command = command_line(&PlannedSession::of(&session), &session.options);
        assert_eq!(command, "python train.py my_config.py --batch_size=8 --n_layer=12");
        session.set_text("n_layer = 6\n".into());
        assert_eq!(session.to_file(), ("config.py", "n_layer = 6\n".to_owned()));
        // A file with a command has no name that a command could repeat.
        for (name, text) in [("run.py", "python train.py --batch_size=8\n"), ("config.txt", "batch_size = 8\n")] {
            session.set_file(ConfigFile { name: name.into(), text: text.into() });
            assert_eq!(session.to_file(), ("config.py", "batch_size = 8\n".to_owned()), "{name}");
        }
        session.set_text("python train.py mine.py\n".into());
        assert_eq!(session.to_file().1, session.text, "a file that was not read is not replaced");
    }

    #[test]
    fn a_command_carries_a_value_that_cannot_be_read() {
        for (text, command) in [
            ("n_layer = 6\nbatch_size = abc\n", "python train.py --batch_size=abc --n_layer=6"),
            ("compile = maybe", "python train.py --compile=maybe"),
            ("batch_size = f(2)", "python train.py --batch_size='f(2)'"),
        ] {
            let session = Session { text: text.into(), ..Session::default() };
            let answer = PlannedSession::of(&session);
            assert!(is_command(&answer));
            assert_eq!(command_line(&answer, &session.options), command);
            let again = PlannedSession::of_text(command);
            let keys =
                |answer: &PlannedSession| answer.resolved.settings.unreadable().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!((again.plan().is_none(), keys(&again)), (true, keys(&answer)), "{command}");
        }
        assert!(!is_command(&PlannedSession::of_text("hello there")));
    }

    #[test]
    fn command_names_the_file_that_a_config_executes() {
        for text in
            ["from config.base import *\nbatch_size = 12\n", "exec(open('config/base.py').read())\nbatch_size = 12\n"]
        {
            let answer = PlannedSession::of_text(text);
            assert!(is_command(&answer), "{text}");
            let command = command_line(&answer, &Options::default());
            assert_eq!(command, "python train.py config/base.py --batch_size=12", "{text}");
            assert!(PlannedSession::of_text(&command).plan().is_none());
        }
        // Here the file overrides the key, unlike in any command.
        let answer = PlannedSession::of_text("batch_size = 4\nfrom config.base import *\n");
        assert!(answer.plan().is_none() && !is_command(&answer));
    }

    #[test]
    fn command_has_values_of_the_types_that_nanogpt_accepts() {
        for (text, command) in [
            ("compile = 'maybe'", "python train.py --compile=True"),
            ("bias = 1\ncompile = ''", "python train.py --bias=True --compile=False"),
            ("dropout = 0\nlearning_rate = 1", "python train.py --dropout=0.0 --learning_rate=1.0"),
            ("max_iters = 6e3", "python train.py --max_iters=6000"),
            (
                "grad_clip = float('inf')",
                "# headroom (config): no argument sets grad_clip to these values; set them in a config file\n\
                 python train.py",
            ),
            ("out_dir = 'None'", "python train.py --out_dir=\"'None'\""),
            ("python train.py a.py --dropout=1\n\n# a.py\ndropout = 0\n", "python train.py a.py --dropout=1"),
            (
                "wandb_run_name = None\nout_dir = 'a=b'\nbatch_size = 8",
                "# headroom (config): no argument sets out_dir, wandb_run_name to these values; set them in a config \
                 file\npython train.py --batch_size=8",
            ),
        ] {
            assert_eq!(command_line(&PlannedSession::of_text(text), &Options::default()), command, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// The command of a run is accepted, and has the run's plan.
        #[test]
        fn command_of_a_plan_has_the_same_plan(
            lines in prop::collection::vec((0..defaults::KEYS.len(), prop::sample::select(VALUES.as_slice())), 1..8),
        ) {
            let line = |(key, value): (usize, &str)| format!("{} = {value}\n", defaults::KEYS[key].name);
            let text: String = lines.into_iter().map(line).collect();
            let answer = PlannedSession::of_text(&text);
            if let Some(plan) = answer.plan() {
                let command = command_line(&answer, &Options::default());
                let again = PlannedSession::of_text(&command);
                let problems = again.resolved.settings.problems.as_slice();
                prop_assert!(problems.is_empty(), "{text}{command}\n{problems:?}");
                let again = again.plan().map(|plan| (&plan.peak, &plan.phases, plan.headroom_bytes));
                prop_assert_eq!(again, Some((&plan.peak, &plan.phases, plan.headroom_bytes)), "{}{}", text, command);
            }
        }
    }

    const VALUES: [&str; 20] = [
        "1",
        "2",
        "12",
        "64",
        "1024",
        "0",
        "0.0",
        "0.5",
        "1.0",
        "6e3",
        "float('inf')",
        "True",
        "False",
        "None",
        "''",
        "'maybe'",
        "'None'",
        "'a b'",
        "'float16'",
        "[1]",
    ];

    #[test]
    fn the_trainers_command_names_its_data() {
        for (text, command) in [
            ("", "headroom train --dataset=openwebtext"),
            ("batch_size = 64\ndataset = 'mine'\n", "headroom train --dataset=mine --batch_size=64"),
        ] {
            let session = Session { text: text.into(), ..Session::default() };
            assert_eq!(train_command(&PlannedSession::of(&session), &session.options), command);
        }
    }

    #[test]
    fn the_command_reads_back_as_the_same_settings() {
        let session = Session { text: "n_layer = 6\nout_dir = 'a b'\nwandb_log = True\n".into(), ..Session::default() };
        let answer = PlannedSession::of(&session);
        let again = from_pasted_text("pasted", &command_line(&answer, &session.options)).read();
        for (key, setting) in answer.resolved.settings.values.iter() {
            assert_eq!(again.value(key).as_ref(), Some(&setting.value), "{key}");
        }
    }

    #[test]
    fn command_with_code_change_is_marked() {
        let mut session = Session { text: "batch_size = 20\n".into(), ..Session::default() };
        session.set_options(|options| options.activation_checkpointing = true);
        let command = command_line(&PlannedSession::of(&session), &session.options);
        assert_eq!(
            command,
            "# headroom (checkpointing): needs 1 change to model.py: activation checkpointing\npython train.py --batch_size=20"
        );
        assert_eq!(from_pasted_text("pasted", &command).read().value("batch_size"), Some(Value::Int(20)));
    }

    #[test]
    fn vocabulary_stays_with_a_command_and_its_copies() {
        let mut session = Session { text: "python train.py --batch_size=4".into(), ..Session::default() };
        session.set_keys(&[("vocab_size", Value::Int(65))]);
        let text = "# headroom (data): vocab_size = 65\npython train.py --batch_size=4";
        assert_eq!(session.text, text);
        session.set_keys(&[("vocab_size", Value::Int(66)), ("n_layer", Value::Int(6))]);
        let text = "# headroom (data): vocab_size = 66\npython train.py --batch_size=4 --n_layer=6";
        assert_eq!(session.text, text);
        session.set_options(|options| options.expandable_segments = true);
        let answer = PlannedSession::of(&session);
        assert_eq!(answer.count("vocab_size"), Some(66));
        let copied = command_line(&answer, &session.options);
        assert!(copied.starts_with("# headroom (data): vocab_size = 66\nPYTORCH_ALLOC_CONF="), "{copied}");
        assert_eq!(PlannedSession::of_text(&copied).count("vocab_size"), Some(66));
        let opened = Session::open(&session.fragment(), None).expect("a link").session;
        assert_eq!(PlannedSession::of(&opened).count("vocab_size"), Some(66));
        assert_eq!(train_command(&answer, &session.options).rsplit(' ').next(), Some("--vocab_size=66"));
        for mut session in [session, opened] {
            needs::undo_vocabulary(&mut session);
            assert_eq!(PlannedSession::of(&session).count("vocab_size"), Some(50304), "{}", session.text);
            assert!(!session.text.contains("vocab_size"), "{}", session.text);
        }
    }
}
