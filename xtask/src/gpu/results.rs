//! The file of results for a GPU and a day. Each line is written immediately, so an interrupted run keeps its results.

use super::{
    step::Step,
    thresholds::{self, Bar},
};
use crate::failure::{IoContext, Result};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A line of a trainer that is missing, or that does not fit on the GPU.
pub fn absent(who: &str, batch_size: u64, reason: &str) -> Value {
    json!({ "kind": "speed", "who": who, "available": false, "batch_size": batch_size, "reason": reason })
}

/// The results so far.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    lines: Vec<Value>,
}

impl ResultFile {
    /// Opens the file of a GPU and a day. Lines of other steps remain, so that a briefly available machine can be used
    /// in several sessions. Lines of the steps that will run are removed.
    pub fn open(path: &Path, machine: Value, steps: &[Step]) -> Result<Self> {
        let text = if path.is_file() {
            fs::read_to_string(path).doing(|| format!("read {}", path.display()))?
        } else {
            String::new()
        };
        let mut lines = vec![machine];
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).doing(|| format!("read {line:?} of {}", path.display()))?;
            let step = Step::ALL.into_iter().find(|step| line["step"] == step.name());
            if step.is_some_and(|step| !steps.contains(&step)) {
                lines.push(line);
            }
        }
        Ok(Self { path: path.to_owned(), lines })
    }

    /// Returns the writer for a step's lines.
    pub fn found(&mut self, step: Step) -> LineWriter<'_> {
        LineWriter { book: self, step }
    }

    /// Adds the result of a step.
    pub fn end(&mut self, step: Step, seconds: f64, failed: Option<&str>) -> Result<()> {
        self.found(step).add(json!({ "kind": "step", "seconds": seconds, "failed": failed }))
    }

    /// Returns all lines except the limits.
    pub fn lines(&self) -> &[Value] {
        &self.lines
    }

    /// Returns the limits computed from all lines.
    pub fn bars(&self) -> Vec<Bar> {
        thresholds::of(&self.lines)
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn save(&self) -> Result<()> {
        let bars = self.bars();
        let lines = self.lines.iter().cloned().chain(bars.iter().map(Bar::line));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        fs::write(&self.path, text).doing(|| format!("write {}", self.path.display()))
    }
}

/// The writer for a step's lines.
#[derive(Debug)]
pub struct LineWriter<'a> {
    book: &'a mut ResultFile,
    step: Step,
}

impl LineWriter<'_> {
    /// Adds a line and writes the file.
    pub fn add(&mut self, mut line: Value) -> Result<()> {
        line["step"] = self.step.name().into();
        self.book.lines.push(line);
        self.book.save()
    }

    /// Adds several lines.
    pub fn extend(&mut self, lines: impl IntoIterator<Item = Value>) -> Result<()> {
        lines.into_iter().try_for_each(|line| self.add(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_done_again_replaces_its_own_lines_alone() {
        let folder = std::env::temp_dir().join(format!("headroom-book-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("card.jsonl");
        let machine = || json!({ "kind": "machine" });
        let mut book = ResultFile::open(&path, machine(), &Step::ALL).expect("none yet");
        let test = |passes: bool| json!({ "kind": "kernel_test", "name": "a", "passes": passes });
        book.found(Step::Kernels).add(test(false)).expect("written");
        book.found(Step::Nvml).add(json!({ "kind": "reading", "present": true })).expect("written");
        book.end(Step::Kernels, 1.0, None).expect("written");
        assert!(book.bars().iter().any(|bar| !bar.holds));

        let mut again = ResultFile::open(&path, machine(), &[Step::Kernels]).expect("what was written");
        assert_eq!(again.lines().len(), 2, "the machine and a reading: {:?}", again.lines());
        again.found(Step::Kernels).add(test(true)).expect("written");
        assert!(again.bars().iter().all(|bar| bar.holds));
        let text = fs::read_to_string(&path).expect("written");
        assert_eq!(text.lines().filter(|line| line.contains("\"kind\":\"bar\"")).count(), again.bars().len());
        fs::remove_dir_all(&folder).expect("ours");
    }
}
