//! Text positions: from a problem's line and column to a text area's selection.

/// A selection in UTF-16 code units, and its vertical position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldSelection {
    /// The first unit.
    pub start: u32,
    /// The unit after the last.
    pub end: u32,
    /// The line's position, from 0 at the first line to 1 after the last.
    pub depth: f64,
}

/// The range from a line and a column, both from 1, to the line's end; `None` beyond the text.
pub fn place(text: &str, line: u32, column: u32) -> Option<FieldSelection> {
    let index = usize::try_from(line.checked_sub(1)?).ok()?;
    let n_lines = text.lines().count().max(1);
    let found = text.lines().nth(index)?;
    let units = |text: &str| u32::try_from(text.encode_utf16().count()).unwrap_or(u32::MAX);
    // A text area counts every line break as one.
    let before: u32 = text.lines().take(index).map(|line| units(line) + 1).sum();
    let skipped = usize::try_from(column.saturating_sub(1)).unwrap_or(0);
    let split = found.char_indices().nth(skipped).map_or(found.len(), |(at, _)| at);
    Some(FieldSelection {
        start: before + units(&found[..split]),
        end: before + units(found),
        depth: index as f64 / n_lines as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_selections_utf16() {
        let text = "x = '🦀'\nn_head = 𝟟 + 1\n";
        let place = place(text, 2, 10).expect("in the text");
        let units: Vec<u16> = text.encode_utf16().collect();
        let selected = &units[place.start as usize..place.end as usize];
        assert_eq!(String::from_utf16(selected).expect("whole characters"), "𝟟 + 1");
        assert!((place.depth - 0.5).abs() < 1e-9);
    }

    #[test]
    fn position_beyond_text_is_none() {
        assert_eq!(place("a", 2, 1), None);
        assert_eq!(place("a", 0, 0), None);
        assert_eq!(place("a", 1, 99).map(|p| (p.start, p.end)), Some((1, 1)));
    }
}
