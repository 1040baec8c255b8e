//! What can happen, read from `stories.txt`: plots of beats, each beat told in one of several ways.

use std::collections::BTreeMap;

/// Everything in the table.
#[derive(Debug, Default)]
pub struct Plots {
    /// Phrases that many plots share, by name.
    pub fragments: BTreeMap<&'static str, Vec<&'static str>>,
    /// In the file's order.
    pub plots: Vec<Plot>,
}

/// One plot.
#[derive(Debug, Default)]
pub struct Plot {
    /// Whether animals play it, not children.
    pub animals: bool,
    /// What it may be called.
    pub titles: Vec<&'static str>,
    /// Words that belong together: of each group one row is taken.
    pub kits: Vec<Vec<Kit>>,
    /// What happens.
    pub beats: Vec<Beat>,
}

/// Words and what they stand for in one telling.
pub type Kit = Vec<(&'static str, &'static str)>;

/// One thing that happens.
#[derive(Debug, Default)]
pub struct Beat {
    /// Whether it begins a paragraph.
    pub paragraph: bool,
    /// How it may be told.
    pub lines: Vec<&'static str>,
}

impl Plots {
    /// Reads the table.
    pub fn parse(table: &'static str) -> Self {
        let mut plots = Self::default();
        let mut fragment = None;
        for line in table.lines().filter(|line| !line.starts_with('%')) {
            if let Some(name) = line.strip_prefix("@ ") {
                fragment = Some(name);
            } else if let Some(head) = line.strip_prefix("= ") {
                fragment = None;
                let (_, cast) = head.split_once(' ').expect("a plot has a name and a cast");
                plots.plots.push(Plot { animals: cast == "animals", ..Plot::default() });
            } else if let Some(name) = fragment {
                let lines: &mut Vec<&str> = plots.fragments.entry(name).or_default();
                lines.extend(Some(line).filter(|line| !line.is_empty()));
            } else if let Some(plot) = plots.plots.last_mut() {
                plot.take(line);
            }
        }
        for plot in &mut plots.plots {
            plot.beats.retain(|beat| !beat.lines.is_empty());
        }
        plots
    }
}

impl Plot {
    fn take(&mut self, line: &'static str) {
        if let Some(title) = line.strip_prefix("# ") {
            self.titles.push(title);
        } else if let Some(words) = line.strip_prefix("& ") {
            let kit: Kit = words.split("; ").filter_map(|word| word.split_once('=')).collect();
            match self.kits.iter_mut().find(|group| group[0][0].0 == kit[0].0) {
                Some(group) => group.push(kit),
                None => self.kits.push(vec![kit]),
            }
        } else if line == "/" {
            self.beats.push(Beat { paragraph: true, lines: vec![] });
        } else if line.is_empty() {
            // An empty line after `/` does not part it from its beat.
            if self.beats.last().is_none_or(|beat| !beat.lines.is_empty()) {
                self.beats.push(Beat::default());
            }
        } else {
            if self.beats.is_empty() {
                self.beats.push(Beat::default());
            }
            self.beats.last_mut().expect("there is one").lines.push(line);
        }
    }
}
