//! Words of the stories, read from `words.txt`, and their plurals.

use std::collections::BTreeMap;

/// Lists of words.
#[derive(Debug)]
pub struct Words {
    /// Lists in the file's order, which determines the result for a seed.
    pub lists: Vec<List>,
    /// Irregular plurals.
    irregular: BTreeMap<&'static str, &'static str>,
}

/// A list of words, or several related lists.
#[derive(Debug)]
pub struct List {
    /// Names of the list's columns; several if words belong together.
    pub names: Vec<&'static str>,
    /// Rows with one word per name.
    pub rows: Vec<Vec<&'static str>>,
}

impl Words {
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

    #[cfg(test)]
    pub fn list(&self, name: &str) -> &List {
        self.lists
            .iter()
            .find(|list| list.names[0] == name)
            .unwrap_or_else(|| panic!("there are no words for {name:?}"))
    }

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

/// Returns "a" or "an" by the initial sound, for the words of these lists.
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
