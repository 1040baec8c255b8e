//! Hunks of diffs of nanoGPT's source code.

/// A hunk of a diff: one line of context on each side, removed and added lines between them.
#[derive(Debug)]
pub struct Hunk {
    /// Line of `before` in nanoGPT as of commit 3adf61e; other versions match at an offset.
    pub line: usize,
    /// Line of context before the change.
    pub before: &'static str,
    /// Lines with a leading `-`, `+` or space.
    pub body: &'static [&'static str],
    /// Line of context after the change.
    pub after: &'static str,
}
