//! Plots of the stories, read from `stories.txt`. A plot consists of beats, each with several alternative lines.

use std::collections::BTreeMap;

/// Contents of the table.
#[derive(Debug, Default)]
pub struct Plots {
    /// Named phrases that several plots share.
    pub fragments: BTreeMap<&'static str, Vec<&'static str>>,
    /// Plots, in the file's order.
    pub plots: Vec<Plot>,
}

#[derive(Debug, Default)]
pub struct Plot {
    /// Whether its characters are animals instead of children.
    pub animals: bool,
    /// Alternative titles.
    pub titles: Vec<&'static str>,
    /// Groups of related words; one row of each group is used.
    pub kits: Vec<Vec<Kit>>,
    /// Events, in order.
    pub beats: Vec<Beat>,
}

/// A row of words with their slot names.
pub type Kit = Vec<(&'static str, &'static str)>;

/// An event of a plot.
#[derive(Debug, Default)]
pub struct Beat {
    /// Whether it begins a paragraph.
    pub paragraph: bool,
    /// Alternative lines.
    pub lines: Vec<&'static str>,
}

impl Plots {
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
            // An empty line after `/` does not separate it from its beat.
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
