//! Config texts that follow a command in the same paste.

use super::lines::lines;
use super::{Source, read};

/// Appends a config's text to the command that names it. Used for files attached to a command, and for pasted text. A
/// later text replaces an earlier one for the same config.
#[must_use]
pub fn with_file_below(command: &str, name: &str, text: &str) -> String {
    format!("{}\n\n# {name}\n{text}", command.trim_end())
}

/// Inserts a config's text into a log that names it, as nanoGPT prints it: before the arguments.
#[must_use]
pub fn with_file_in_log(log: &str, name: &str, text: &str) -> String {
    let heading = format!("Overriding config with {name}:");
    let is_next = |line: &str| line.starts_with("Overriding: ") || line.starts_with("tokens per iteration will be: ");
    let own = lines(log).find(|(_, line)| line.trim_end() == heading).map(|(at, _)| at);
    let at = own.or_else(|| lines(log).find(|(_, line)| is_next(line)).map(|(at, _)| at)).unwrap_or(log.len());
    format!("{}{heading}\n{}\n{}", &log[..at], text.trim_end(), &log[at..])
}

/// Assigns the texts below a command to the configs that it names. Each text follows a comment with the config's name.
/// A single text needs no comment if it is a config.
pub(super) fn read_files(below: &str, sources: &mut [Source]) {
    let named = |source: &Source| match source {
        Source::Named { name } => Some(name.clone()),
        _ => None,
    };
    let names: Vec<String> = sources.iter().filter_map(named).collect();
    if below.trim().is_empty() || names.is_empty() {
        return;
    }
    let heads = lines(below).filter_map(|(at, line)| {
        let name = line.strip_prefix("# ")?.trim();
        names.iter().any(|known| known == name).then_some((at, at + line.len(), name))
    });
    let heads: Vec<(usize, usize, &str)> = heads.collect();
    let mut give = |name: &str, text: &str| {
        for source in sources.iter_mut() {
            if *source == (Source::Named { name: name.to_owned() }) {
                *source = Source::File { name: name.to_owned(), text: text.to_owned() };
            }
        }
    };
    // Of two texts with the same name, the later one is used.
    for (i, (_, start, name)) in heads.iter().enumerate().rev() {
        let end = heads.get(i + 1).map_or(below.len(), |(next, ..)| *next);
        give(name, below.get(*start..end).unwrap_or_default());
    }
    if let ([name], true) = (names.as_slice(), heads.is_empty()) {
        let config = read(&[Source::File { name: name.clone(), text: below.to_owned() }]);
        if !config.sets_nothing() && !config.problems.has_errors() {
            give(name, below);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PastedKind, Value, from_pasted_text};
    use super::*;

    #[test]
    fn a_config_below_a_command_is_its_text() {
        let read = |text: &str| {
            let pasted = from_pasted_text("pasted", text);
            assert_eq!(pasted.kind, PastedKind::Command, "{text}");
            let settings = pasted.read();
            (settings.is_complete(), settings.value("batch_size"), settings.value("n_layer"))
        };
        let (four, six) = (Some(Value::Int(4)), Some(Value::Int(6)));
        let command = "python train.py config/a.py --n_layer=6";
        for text in [
            with_file_below(command, "config/a.py", "batch_size = 4\nn_layer = 8\n"),
            with_file_below(
                &with_file_below(command, "config/a.py", "batch_size = 5"),
                "config/a.py",
                "batch_size = 4",
            ),
            format!("{command}\n\nbatch_size = 4\n"),
            "$ python train.py \\\r\n config/a.py --n_layer=6\n# mine\nbatch_size = 4\n".to_owned(),
        ] {
            assert_eq!(read(&text), (true, four.clone(), six.clone()), "{text}");
        }
        let two = "python train.py a.py b.py";
        let both =
            with_file_below(&with_file_below(two, "b.py", "batch_size = 4"), "a.py", "n_layer = 6\nbatch_size = 9");
        assert_eq!(read(&both), (true, four, six));
        // A stock config, and text that is not a config.
        let stock = "python train.py config/train_shakespeare_char.py --batch_size=4";
        assert_eq!(read(stock), (true, Some(Value::Int(4)), Some(Value::Int(6))));
        for text in [two, command, &format!("{command}\nTraceback: no\n"), &format!("{command}\nhello\n")] {
            assert!(!read(text).0, "{text}");
        }
    }
}
