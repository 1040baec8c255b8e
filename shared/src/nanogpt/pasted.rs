//! Text that somebody pasted: a config, the command that started a run, or what the run printed. Finds out which, and
//! what nanoGPT was given in it.

use crate::text;
use serde::Serialize;

use super::defaults::{self, DEFAULT_VOCAB_SIZE};
use super::problem::{Problem, Problems, Severity};
use super::value::Value;
use super::{MAX_SOURCE_BYTES, MAX_SOURCES, Settings, Source, below, read, shortened, words};

/// What a text turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PastedKind {
    /// A config file.
    Config,
    /// `python train.py …` or `torchrun … train.py …`, or only arguments.
    Command,
    /// What `train.py` printed.
    Log,
    /// A run in a few words, as "124M, batch 64".
    Words,
}

/// What was found in a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Pasted {
    /// What it was taken for.
    pub kind: PastedKind,
    /// What nanoGPT was given, in order.
    pub sources: Vec<Source>,
    /// Processes in all, where a command starts them with torchrun: per node times nodes.
    pub world_size: Option<u64>,
    /// What could not be made out of a command.
    pub problems: Problems,
}

impl Pasted {
    /// Reads the sources, with this text's own problems first.
    #[must_use]
    pub fn read(&self) -> Settings {
        let mut settings = read(&self.sources);
        let mut problems = self.problems.clone();
        for problem in settings.problems.as_slice() {
            problems.push(problem.clone());
        }
        settings.problems = problems;
        settings
    }
}

/// Takes a pasted text apart. `name` is what a config is called in messages, and nothing else.
#[must_use]
pub fn from_pasted_text(name: &str, text: &str) -> Pasted {
    let mut pasted =
        Pasted { kind: PastedKind::Config, sources: vec![], world_size: None, problems: Problems::default() };
    if text.len() <= MAX_SOURCE_BYTES {
        if lines(text).any(|(_, line)| OF_A_LOG.iter().any(|start| line.starts_with(start))) {
            pasted.kind = PastedKind::Log;
            log(text, &mut pasted);
            return pasted;
        }
        let start = lines(text).find(|(_, line)| !matches!(line.trim_start().as_bytes(), [] | [b'#' | b'`', ..]));
        if let Some(start) = start.map(|(at, _)| at)
            && command(&text[start..], &mut pasted)
        {
            pasted.kind = PastedKind::Command;
            let end = start + commands(&text[start..]).1;
            below::read_files(text.get(end..).unwrap_or_default(), &mut pasted.sources);
            return pasted;
        }
    }
    // The fences of Markdown become comments of the same length, so that places stay right.
    let mut text = text.to_owned();
    let fences: Vec<usize> = lines(&text).filter(|(_, line)| line.starts_with("```")).map(|(at, _)| at).collect();
    for at in fences {
        text.replace_range(at..=at, "#");
    }
    // A config is what sets a key; what a few words say is looked for only where it sets none.
    if text.len() <= words::MAX_BYTES {
        let file = Source::File { name: name.into(), text: text.clone() };
        let said = read(&[file]).sets_nothing().then(|| words::config(&text)).flatten();
        if let Some(config) = said {
            pasted.kind = PastedKind::Words;
            text = config;
        }
    }
    pasted.sources.push(Source::File { name: name.into(), text });
    pasted
}

/// What only `train.py` prints. The last of them it prints where no setting is changed, too.
const OF_A_LOG: [&str; 3] = ["Overriding config with ", "Overriding: ", "tokens per iteration will be: "];

/// Each line with its offset, without its line break.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        (start, line.trim_end_matches(['\n', '\r']))
    })
}

/// What `train.py` prints after its settings, each with a line that starts so. They end the text of a config.
pub(super) const AFTER_CONFIG: [&str; 10] = [
    "Overriding",
    "tokens per iteration will be:",
    "found vocab_size = ",
    "defaulting to vocab_size",
    "Initializing",
    "Resuming training from",
    "number of parameters:",
    "Traceback (most recent call last)",
    "step 0: train loss",
    "iter 0: loss",
];

/// Lines of a log, from its start, that are looked at for the command that made it.
const MAX_LINES_BEFORE: usize = 50;
/// Longest command, in characters: a quote that is never closed must not make the whole paste one word.
const MAX_COMMAND_CHARS: usize = 64 * 1024;

fn log(text: &str, pasted: &mut Pasted) {
    // The config whose text is being printed, and where that starts.
    let mut open: Option<(&str, usize)> = None;
    let mut lines_for_command = MAX_LINES_BEFORE;
    for (at, line) in lines(text) {
        if lines_for_command > 0 && command(&text[at..], pasted) {
            // Its arguments are in the log as well, with what they came to.
            pasted.sources.clear();
            lines_for_command = 0;
        }
        lines_for_command = lines_for_command.saturating_sub(1);
        if !AFTER_CONFIG.iter().any(|start| line.starts_with(start)) {
            continue;
        }
        lines_for_command = 0;
        if let Some((name, start)) = open.take() {
            add(pasted, Source::File { name: name.into(), text: text[start..at].into() });
        }
        if let Some(name) = line.strip_prefix("Overriding config with ") {
            let start = text[at..].find('\n').map_or(text.len(), |n| at + n + 1);
            open = Some((name.trim_end().trim_end_matches(':'), start));
        } else if let Some((key, value)) = line.strip_prefix("Overriding: ").and_then(|rest| rest.split_once(" = ")) {
            add(pasted, printed_override(key, value));
        } else if let Some(rest) = line.strip_prefix("found vocab_size = ") {
            let size = rest.split(' ').next().unwrap_or_default();
            add(pasted, printed_override("vocab_size", size));
        } else if line.starts_with("defaulting to vocab_size") {
            add(pasted, printed_override("vocab_size", &DEFAULT_VOCAB_SIZE.to_string()));
        }
    }
    if let Some((name, start)) = open {
        add(pasted, Source::File { name: name.into(), text: text[start..].into() });
    }
}

/// The argument that made nanoGPT print `Overriding: key = value`. It prints a string without quotes.
fn printed_override(key: &str, value: &str) -> Source {
    let is_str = defaults::find(key).is_some_and(|k| k.default.type_name() == "str");
    // A word is read as the string it is; a number or a constant has to be quoted to stay one.
    let reads_as_other =
        value.starts_with(|c: char| !c.is_ascii_alphabetic() && c != '/') || matches!(value, "True" | "False" | "None");
    let value = if is_str && reads_as_other { Value::Str(value.into()).to_string() } else { value.into() };
    Source::Override { text: format!("--{key}={value}") }
}

/// Adds a source unless it is there: each process of a torchrun prints the same.
fn add(pasted: &mut Pasted, source: Source) {
    if pasted.sources.len() <= MAX_SOURCES && !pasted.sources.contains(&source) {
        pasted.sources.push(source);
    }
}

/// Takes the command that `text` starts with, if it starts one that trains.
fn command(text: &str, pasted: &mut Pasted) -> bool {
    for words in commands(text).0 {
        let basename = |word: &str| word.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let is_launcher = |word: &String| {
            let base = basename(word);
            base.starts_with("python") || base.starts_with("torchrun") || word.starts_with("torch.distributed")
        };
        let launcher = words.iter().position(is_launcher);
        let script = words.iter().position(|word| word.ends_with(".py"));
        let (launch, arguments) = match (launcher, script) {
            (Some(first), Some(script)) if first < script => words.split_at(script + 1),
            (_, Some(0)) if basename(&words[0]) == "train.py" => words.split_at(1),
            _ if words.first().is_some_and(|word| word.starts_with("--") && word.contains('=')) => words.split_at(0),
            _ => continue,
        };
        if launch.iter().any(|word| basename(word).starts_with("torchrun") || word.starts_with("torch.distributed")) {
            pasted.world_size = world_size(launch, &mut pasted.problems);
        }
        for word in arguments.iter().take(MAX_SOURCES + 1) {
            pasted.sources.push(if word.contains('=') || word.starts_with('-') {
                Source::Override { text: word.clone() }
            } else {
                Source::Named { name: word.clone() }
            });
        }
        return true;
    }
    false
}

/// Processes per node times nodes, as torchrun is told; `None`, with a problem, where it decides by the machine.
fn world_size(launch: &[String], problems: &mut Problems) -> Option<u64> {
    let mut product = Some(1_u64);
    for (i, word) in launch.iter().enumerate() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, value),
            None => (word.as_str(), launch.get(i + 1).map_or("", String::as_str)),
        };
        let flag = flag.trim_start_matches('-').replace('-', "_");
        if !word.starts_with('-') || !matches!(flag.as_str(), "nproc_per_node" | "nnodes") {
            continue;
        }
        // Nodes may be given as least:most.
        let (least, most) = value.split_once(':').unwrap_or((value, value));
        match least.parse::<u64>() {
            Ok(n) if n > 0 && least == most => product = product.and_then(|p| p.checked_mul(n)),
            _ => {
                problems.push(Problem {
                    severity: Severity::Warning,
                    source: shortened(word),
                    line: 0,
                    column: 0,
                    message: text::processes_unknown(shortened(value)),
                    hint: Some(text::write_a_number(flag.as_str())),
                });
                product = None;
            }
        }
    }
    product
}

/// The words of each command on the first line of `text`, which a backslash carries on below, and how long that is in
/// bytes. Follows the shell's quotes, and ends a command at `|`, `&`, `;`, `<`, `>` and `#`.
fn commands(text: &str) -> (Vec<Vec<String>>, usize) {
    let mut all = vec![];
    let mut words: Vec<String> = vec![];
    let mut word: Option<String> = None;
    let mut chars = text.chars().take(MAX_COMMAND_CHARS).peekable();
    let mut quote = None;
    let mut length = 0;
    while let Some(c) = chars.next() {
        length += c.len_utf8();
        match (c, quote) {
            ('\\', None | Some('"')) => match chars.peek().copied() {
                Some('\r' | '\n') => {
                    // CR LF is one line break.
                    let first = chars.next();
                    let second = chars.next_if(|second| first == Some('\r') && *second == '\n');
                    length += first.iter().chain(&second).map(|c| c.len_utf8()).sum::<usize>();
                }
                // In a path of Windows the backslash stays.
                Some(next) if next.is_ascii_alphanumeric() || next == '.' => word.get_or_insert_default().push(c),
                Some(next) => {
                    word.get_or_insert_default().push(next);
                    chars.next();
                    length += next.len_utf8();
                }
                None => {}
            },
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\n' | '\r', None) => break,
            ('#', None) if word.is_none() => break,
            (' ' | '\t', None) => words.extend(word.take()),
            ('|' | '&' | ';' | '<' | '>', None) => {
                // A number before a redirection is the stream's.
                let stream =
                    matches!(c, '<' | '>') && word.as_ref().is_some_and(|w| w.bytes().all(|b| b.is_ascii_digit()));
                words.extend(word.take().filter(|_| !stream));
                all.push(std::mem::take(&mut words));
            }
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    all.push(words);
    // A prompt that was copied with the command.
    for words in &mut all {
        if words.first().is_some_and(|word| matches!(word.as_str(), "$" | "%" | ">" | ">>>")) {
            words.remove(0);
        }
    }
    (all, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(text: &str) -> Source {
        Source::Override { text: text.into() }
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
        ] {
            check_command(text, None, &sources);
        }
        check_command("--batch_size=64 --n_layer=6", None, &sources[1..]);
        check_command(r"python .\train.py config\x.py", None, &[named(r"config\x.py")]);
        check_command("python train.py --wandb_run_name='my run'", None, &[over("--wandb_run_name=my run")]);
    }

    #[test]
    fn torchrun_tells_the_number_of_processes() {
        for (text, size) in [
            ("torchrun --standalone --nproc_per_node=4 train.py", Some(4)),
            ("torchrun --nproc-per-node 8 --nnodes 2 --node_rank=0 train.py", Some(16)),
            ("OMP_NUM_THREADS=1 torchrun --nproc_per_node=8 --nnodes=2:2 --master_port=1234 train.py", Some(16)),
            ("python -m torch.distributed.launch --nproc_per_node=2 train.py", Some(2)),
            ("torchrun train.py", Some(1)),
            ("torchrun --nproc_per_node=gpu train.py", None),
            ("torchrun --nnodes=1:4 --nproc_per_node=8 train.py", None),
        ] {
            check_command(text, size, &[]);
        }
        let pasted = from_pasted_text("pasted", "torchrun --nproc_per_node=gpu train.py");
        assert_eq!(
            pasted.problems.as_slice()[0].to_string(),
            "--nproc_per_node=gpu: how many processes `gpu` means is known only on that machine\n\nhint: write \
             --nproc_per_node= with a number"
        );
    }

    #[test]
    fn a_config_is_read_as_it_stands() {
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
                over("--batch_size=64"),
                over("--dataset=tiny"),
                over("--out_dir='7'"),
                over("--vocab_size=65"),
            ]
        );
        let mut settings = pasted.read();
        assert_eq!(settings.get_u64("n_layer"), Some(6));
        assert_eq!(settings.get_u64("n_head"), Some(12));
        assert_eq!(settings.get_str("out_dir").as_deref(), Some("7"));
        assert_eq!(settings.vocab_size(), 65);
        assert_eq!(settings.get_f64("dropout"), Some(0.0));
        let said: Vec<String> = settings.problems.as_slice().iter().map(ToString::to_string).collect();
        assert_eq!(said, ["config/x.py:3:11: dropout is 0,2, but it has to be a number"]);
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
}
