//! The words that a story is told with, read from `words.txt`, and their plurals.

use std::collections::BTreeMap;

/// The lists of words.
#[derive(Debug)]
pub struct Words {
    /// In the file's order: which list is drawn first decides what a seed tells.
    pub lists: Vec<List>,
    /// Plurals that no rule makes.
    irregular: BTreeMap<&'static str, &'static str>,
}

/// One list, or several side by side.
#[derive(Debug)]
pub struct List {
    /// Its name; more than one where words belong together.
    pub names: Vec<&'static str>,
    /// One word for each name.
    pub rows: Vec<Vec<&'static str>>,
}

impl Words {
    /// Reads the table.
    pub fn parse(table: &'static str) -> Self {
        let mut irregular = BTreeMap::new();
        let mut lists = Vec::new();
        for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('%')) {
            let (names, words) = line.split_once(": ").expect("a list has a name and words");
            let mut rows = Vec::new();
            for word in words.split(", ") {
                let mut row: Vec<&str> = word.split('=').collect();
                if let Some((one, many)) = word.split_once('-').filter(|_| word != "yo-yo") {
                    irregular.insert(one, many);
                    row = vec![one];
                }
                rows.push(row);
            }
            lists.push(List { names: names.split('/').collect(), rows });
        }
        Self { lists, irregular }
    }

    /// The words of one list.
    #[cfg(test)]
    pub fn list(&self, name: &str) -> &List {
        self.lists
            .iter()
            .find(|list| list.names[0] == name)
            .unwrap_or_else(|| panic!("there are no words for {name:?}"))
    }

    /// Several of a noun.
    pub fn plural(&self, noun: &str) -> String {
        if let Some(many) = self.irregular.get(noun) {
            return (*many).to_owned();
        }
        let vowel_y = ["ay", "ey", "oy", "uy"].iter().any(|end| noun.ends_with(end));
        match noun {
            _ if noun.ends_with('y') && !vowel_y => format!("{}ies", &noun[..noun.len() - 1]),
            _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
            _ => format!("{noun}s"),
        }
    }
}

/// "a" or "an", by the sound that a word of these lists begins with.
pub fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_follow_their_rule() {
        let words = Words::parse("shiny: leaf-leaves, shell\nirregular: fish-fish\n");
        for (one, many) in [
            ("apple", "apples"),
            ("cherry", "cherries"),
            ("toy", "toys"),
            ("peach", "peaches"),
            ("leaf", "leaves"),
            ("fish", "fish"),
        ] {
            assert_eq!(words.plural(one), many);
        }
    }

    #[test]
    fn words_that_belong_together_stay_together() {
        let words = Words::parse("% a comment\nplace/at: the park=in the park, the sea=by the sea\n");
        assert_eq!(words.list("place").rows[1], ["the sea", "by the sea"]);
    }
}
