//! The run as a command line, and the plan as JSON: what a person takes away.

use headroom_shared::{
    advice::advise,
    nanogpt::{Settings, Source, defaults, read},
    session::Options,
};

use super::{answer::Answer, edit::shell_value, json, needs};

/// The command that starts this run: the configs that were named, and as flags those keys that they leave at other values.
///
/// Changes to nanoGPT's code that the plan assumes are named in a comment above it.
/// `vocab_size` stays out, as nanoGPT takes it from the data set and refuses it as a flag.
pub fn command_line(answer: &Answer, options: &Options) -> String {
    let mut command = match options.world_size {
        0 | 1 => String::from("python train.py"),
        n => format!("torchrun --standalone --nproc_per_node={n} train.py"),
    };
    for name in answer.configs.iter().filter_map(config_name) {
        command.push(' ');
        command.push_str(&quoted(name));
    }
    push_flags(&mut command, answer, &read(&answer.configs), &[]);
    // On a line of its own: some shells take a comment behind a command for arguments.
    answer.plan().map(|plan| needs::comment(&needs::of_plan(plan))).unwrap_or_default() + &command
}

fn config_name(source: &Source) -> Option<&str> {
    match source {
        Source::File { name, .. } | Source::Named { name } => Some(name),
        Source::Override { .. } => None,
    }
}

/// A path as a shell takes it.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./+~".contains(c);
    if path.chars().all(is_plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// The same run by the trainer that is built in. The data set is always named: where none is, it trains a model of its own.
pub fn train_command(answer: &Answer, _: &Options) -> String {
    let mut command = String::from("headroom train");
    push_flags(&mut command, answer, &Settings::default(), &["dataset"]);
    command
}

/// Keys that have other values than `base`, which is nanoGPT's defaults where it sets nothing, and those that are to be there
/// in any case. What a config that was not read sets is not known, so every argument beside one stays.
fn push_flags(command: &mut String, answer: &Answer, base: &Settings, always: &[&str]) {
    let settings = &answer.resolved.settings;
    for key in defaults::KEYS.iter().filter(|key| key.name != "vocab_size") {
        let Some(value) = settings.value(key.name) else { continue };
        let stays = !base.unread.is_empty() && settings.is_argument(key.name);
        if base.value(key.name).as_ref() == Some(&value) && !stays && !always.contains(&key.name) {
            continue;
        }
        if let Some(value) = shell_value(&value) {
            command.push_str(&format!(" --{}={value}", key.name));
        }
    }
}

/// The plan as the command line's `--json` prints it.
pub fn plan_as_json(answer: &Answer, options: &Options) -> Option<String> {
    let plan = answer.plan()?;
    let advice = advise(&answer.resolved.settings, options, plan);
    Some(json::pretty(&plan.document(&answer.resolved.config, &advice, crate::text::table()).into_value()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::session::Session;
    use headroom_shared::nanogpt::{Value, from_pasted_text};

    #[test]
    fn only_what_differs_becomes_a_flag() {
        let text = "batch_size = 12\nn_layer = 6\ndropout = 0.2\nout_dir = 'a b'\nvocab_size = 65\nmine = 3\n";
        let mut session = Session { text: text.into(), ..Session::default() };
        let answer = Answer::of(&session);
        let command = command_line(&answer, &session.options);
        assert_eq!(command, "python train.py --out_dir=\"'a b'\" --n_layer=6 --dropout=0.2");
        session.options.world_size = 2;
        assert!(
            command_line(&answer, &session.options).starts_with("torchrun --standalone --nproc_per_node=2 train.py")
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
                "Overriding config with config/b.py:\nn_layer = 6\n\nOverriding: batch_size = 64\n",
                "python train.py config/b.py --batch_size=64",
            ),
        ] {
            let session = Session { text: text.into(), ..Session::default() };
            assert_eq!(command_line(&Answer::of(&session), &session.options), command);
        }
    }

    #[test]
    fn the_trainers_command_names_its_data() {
        for (text, command) in [
            ("", "headroom train --dataset=openwebtext"),
            ("batch_size = 64\ndataset = 'mine'\n", "headroom train --dataset=mine --batch_size=64"),
        ] {
            let session = Session { text: text.into(), ..Session::default() };
            assert_eq!(train_command(&Answer::of(&session), &session.options), command);
        }
    }

    #[test]
    fn the_command_reads_back_as_the_same_settings() {
        let session = Session { text: "n_layer = 6\nout_dir = 'a b'\nwandb_log = True\n".into(), ..Session::default() };
        let answer = Answer::of(&session);
        let again = from_pasted_text("pasted", &command_line(&answer, &session.options)).read();
        for (key, setting) in answer.resolved.settings.values.iter() {
            assert_eq!(again.value(key).as_ref(), Some(&setting.value), "{key}");
        }
    }

    #[test]
    fn a_command_that_counts_on_other_code_says_so() {
        let mut session = Session { text: "batch_size = 20\n".into(), ..Session::default() };
        session.set_options(|options| options.activation_checkpointing = true);
        let command = command_line(&Answer::of(&session), &session.options);
        assert_eq!(
            command,
            "# headroom (code): needs 1 change to model.py: activation checkpointing\npython train.py --batch_size=20"
        );
        assert_eq!(from_pasted_text("pasted", &command).read().value("batch_size"), Some(Value::Int(20)));
    }

    #[test]
    fn json_is_the_contracts_document() {
        let answer = Answer::of_text("compile = False");
        let json: serde_json::Value =
            serde_json::from_str(&plan_as_json(&answer, &Options::default()).expect("a plan")).expect("valid JSON");
        assert_eq!(json["schema"], 1);
        assert_eq!(json["config"]["batch_size"], 12);
    }
}
