//! Python tracebacks in a stream of lines. Processes of one stream may interleave, each with a tag such as `[rank1]: `.

use std::collections::{BTreeMap, VecDeque};

/// First line of a traceback.
const HEAD: &str = "Traceback (most recent call last):";
/// Sentences between the tracebacks of a chain of exceptions.
const LINKS: [&str; 2] = [
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
];
/// Exceptions of launchers, which report that a process failed rather than why.
const OF_LAUNCHERS: [&str; 3] = ["ChildFailedError", "SignalException", "CalledProcessError"];
/// Log lines of torchrun after the failure of a process.
const LAUNCHER_LOG: &str = "torch/distributed/elastic/";
/// Line in torchrun's table before the process that failed first.
const FIRST_FAILURE: &str = "Root Cause (first observed failure):";
/// Placeholder for omitted lines.
const LEFT_OUT: &str = "  …";
/// Limit of frame lines of an exception.
const FRAME_LINES_MAX: usize = 10;
/// Limit of lines from the exception on.
const MESSAGE_LINES_MAX: usize = 10;
/// Limit of processes whose tracebacks are kept.
const PROCESSES_MAX: usize = 64;

/// Newest chain of exceptions of each process.
#[derive(Debug, Default)]
pub struct Tracebacks {
    /// Processes with a tag.
    tagged: BTreeMap<String, Chain>,
    /// Lines without a tag.
    plain: Option<Chain>,
    /// Newest chain before `plain` that is not a launcher's.
    plain_before: Option<Chain>,
    /// First chain before `plain_before` that is not a launcher's: several processes may write to one stream.
    plain_first: Option<Chain>,
    n_chains: u64,
    /// Whether the next rank in torchrun's table is that of the process that failed first.
    is_first_failure: bool,
    /// Possible ends of the tag of the process that failed first.
    first_tags: Vec<String>,
}

/// Chained exceptions of one process.
#[derive(Debug, Default)]
struct Chain {
    /// Order of the chains of all processes.
    number: u64,
    /// Indentation of the traceback in bytes.
    indent: usize,
    /// First exception, which caused all others.
    root: Option<Exception>,
    /// Whether exceptions between the first and the last were omitted.
    is_cut: bool,
    /// Sentence before the last exception.
    link: Option<String>,
    last: Exception,
    state: State,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// Frames of the last exception follow.
    #[default]
    Frames,
    /// Lines of its message follow.
    Message,
    /// A sentence announced another exception.
    Linked,
    /// The lines that follow belong to something else.
    Closed,
}

/// A traceback and the message of its exception.
#[derive(Debug, Default)]
struct Exception {
    head: String,
    frames: VecDeque<String>,
    is_cut: bool,
    message: Vec<String>,
}

impl Exception {
    fn starts(head: &str) -> Self {
        Self { head: head.to_owned(), ..Self::default() }
    }

    fn is_of_launcher(&self) -> bool {
        let class = self.message.first().and_then(|line| line.split(':').next()).unwrap_or_default();
        OF_LAUNCHERS.iter().any(|name| class.ends_with(name))
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        let cut = self.is_cut.then_some(LEFT_OUT);
        let end = self.message.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |at| at + 1);
        let frames = self.frames.iter().map(String::as_str);
        [&*self.head].into_iter().chain(cut).chain(frames).chain(self.message[..end].iter().map(String::as_str))
    }
}

impl Chain {
    /// Adds a line. `text` is the line without its tag.
    fn push(&mut self, line: &str, text: &str) {
        let (indent, sentence) = (text.len() - text.trim_start().len(), text.trim());
        let text = &text[self.indent.min(indent)..];
        match self.state {
            State::Frames if text.starts_with([' ', '\t']) || text.is_empty() => {
                if self.last.frames.len() >= FRAME_LINES_MAX {
                    self.last.frames.pop_front();
                    self.last.is_cut = true;
                }
                self.last.frames.push_back(line.to_owned());
            }
            State::Frames => {
                self.last.message.push(line.to_owned());
                self.state = State::Message;
            }
            State::Message if LINKS.contains(&sentence) => {
                (self.link, self.state) = (Some(line.to_owned()), State::Linked);
            }
            State::Message if text.contains(LAUNCHER_LOG) => self.state = State::Closed,
            State::Message if self.last.message.len() < MESSAGE_LINES_MAX => self.last.message.push(line.to_owned()),
            State::Message | State::Closed | State::Linked => {}
        }
    }

    /// Starts the next exception of the chain.
    fn next(&mut self, head: &str) {
        let before = std::mem::replace(&mut self.last, Exception::starts(head));
        if self.root.is_none() {
            self.root = Some(before);
        } else {
            self.is_cut = true;
        }
        self.state = State::Frames;
    }

    /// Whether it was printed as far as its exception.
    fn is_complete(&self) -> bool {
        self.root.is_some() || !self.last.message.is_empty()
    }

    fn is_of_launcher(&self) -> bool {
        self.root.is_none() && self.last.is_of_launcher()
    }

    /// First line of the last exception's message.
    fn exception(&self) -> Option<&str> {
        self.last.message.first().map(String::as_str)
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![];
        if let Some(root) = &self.root {
            lines.extend(root.lines().map(str::to_owned));
            lines.push(String::new());
            if self.is_cut {
                lines.push(LEFT_OUT.to_owned());
            }
            lines.extend(self.link.clone());
            lines.push(String::new());
        }
        lines.extend(self.last.lines().map(str::to_owned));
        lines
    }
}

impl Tracebacks {
    /// Adds a line without control characters.
    pub fn push(&mut self, line: &str) {
        if let Some(before) = line.strip_suffix(HEAD) {
            self.start(before, line);
            return;
        }
        self.find_first_failure(line);
        // A tag without a text ends at its last visible character.
        let tagged = self.tagged.iter_mut().find(|(tag, _)| line.starts_with(tag.trim_end()));
        if let Some((tag, chain)) = tagged {
            chain.push(line, line.strip_prefix(&**tag).unwrap_or_default());
        } else if let Some(chain) = &mut self.plain {
            chain.push(line, line);
        }
    }

    /// Starts an exception at its first line, which has the text `before` the usual head.
    fn start(&mut self, before: &str, line: &str) {
        let tag = Some(before).filter(|before| is_tag(before));
        let chain = match tag {
            Some(tag) => self.tagged.get_mut(tag),
            None => self.plain.as_mut(),
        };
        if let Some(chain) = chain.filter(|chain| chain.state == State::Linked) {
            chain.next(line);
            return;
        }
        self.n_chains += 1;
        let indent = before.len() - before.trim_start().len();
        let chain = Chain { number: self.n_chains, indent, last: Exception::starts(line), ..Chain::default() };
        match tag {
            Some(tag) if self.tagged.len() < PROCESSES_MAX || self.tagged.contains_key(tag) => {
                self.tagged.insert(tag.to_owned(), chain);
            }
            Some(_) => {}
            None => {
                let earlier = self.plain.replace(chain);
                if let Some(earlier) = earlier.filter(|chain| chain.is_complete() && !chain.is_of_launcher()) {
                    let before = self.plain_before.replace(earlier);
                    self.plain_first = self.plain_first.take().or(before);
                }
            }
        }
    }

    /// Reads the rank of the process that failed first from torchrun's table.
    fn find_first_failure(&mut self, line: &str) {
        if line.contains(FIRST_FAILURE) {
            self.is_first_failure = true;
        } else if self.is_first_failure
            && let Some(rank) = line.trim().strip_prefix("rank")
            && let Some(rank) = rank.trim_start().strip_prefix(':')
        {
            // `1 (local_rank: 0)`; torchrun itself tags lines by the local rank.
            let mut numbers = rank.split(|c: char| !c.is_ascii_digit()).filter(|number| !number.is_empty());
            let tags = ["rank", "default"].map(|name| numbers.next().map(|number| format!("{name}{number}]:")));
            self.is_first_failure = false;
            self.first_tags = tags.into_iter().flatten().collect();
        }
    }

    /// Whether there is no traceback.
    pub fn is_empty(&self) -> bool {
        self.n_chains == 0
    }

    /// Takes the lines of the exception that ended the program, after the first exception of its chain. If several
    /// processes failed differently, that is the first one, followed by the last one if both have at most `bytes_max`
    /// bytes. Returns whether the exception is a launcher's, which has no cause. `None` without a traceback.
    pub fn take(&mut self, bytes_max: usize) -> Option<(Vec<String>, bool)> {
        let Self { tagged, plain, plain_before, plain_first, first_tags, .. } = std::mem::take(self);
        let is_first = |tag: &str| first_tags.iter().any(|end| tag.trim_end().ends_with(&**end));
        // Without torchrun's table, the process that printed first counts as the first that failed.
        let tagged = tagged.into_iter().filter(|(_, chain)| chain.is_complete());
        let of_rank = tagged.min_by_key(|(tag, chain)| (!is_first(tag), chain.number)).map(|(_, chain)| chain);
        let plain = plain_first.into_iter().chain(plain_before).chain(plain);
        let (launcher, plain): (Vec<Chain>, Vec<Chain>) = plain.partition(Chain::is_of_launcher);
        // A traceback that ends before its exception may be the only one.
        let (complete, cut): (Vec<Chain>, Vec<Chain>) = plain.into_iter().partition(Chain::is_complete);
        let last = complete.last().map(|chain| (chain.exception().map(str::to_owned), chain.lines()));
        let is_of_rank = of_rank.is_some();
        let chain = of_rank.into_iter().chain(complete).chain(launcher).chain(cut).next()?;
        let mut lines = chain.lines();
        if let Some((exception, further)) = last
            && !is_of_rank
            && exception.as_deref() != chain.exception()
            && [&lines, &further].into_iter().flatten().map(|line| line.len() + 1).sum::<usize>() <= bytes_max
        {
            lines.push(String::new());
            lines.extend(further);
        }
        Some((lines, chain.is_of_launcher()))
    }
}

/// Whether the text before a traceback's head is a tag that each of its lines has, such as `[rank1]: `.
fn is_tag(before: &str) -> bool {
    before.starts_with(['[', '(']) && before.trim_end().ends_with([':', ']', ')', '|'])
}
