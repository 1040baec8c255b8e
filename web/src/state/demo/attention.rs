//! Attention: the weights of a head, the shades of a map, and the tokens that a token attends to most.

use headroom_protocol::demo::{Maps, TokenAttention};
use headroom_text::{Separator, decimal};

use super::{Demo, visible};
use crate::text::{self, Text};

/// A head of a layer, or all heads of a layer together. Indices start at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Index of the layer.
    pub layer: usize,
    /// Index of the head in the layer; `None` for the mean of the layer's heads.
    pub head: Option<usize>,
}

impl Default for Head {
    fn default() -> Self {
        Self { layer: 0, head: Some(0) }
    }
}

impl Head {
    /// The name of the layer and head.
    pub fn text(self) -> Text {
        match self.head {
            Some(head) => text::demo_map_of(self.layer as u64, head as u64),
            None => text::demo_map_of_mean(self.layer as u64),
        }
    }

    /// The head's part of weights that are grouped by layer and head.
    pub fn of(self, weights: &[u16], (n_layer, n_head): (usize, usize)) -> Vec<u16> {
        let n = weights.len() / (n_layer * n_head).max(1);
        if n == 0 {
            return Vec::new();
        }
        let mut heads = weights.chunks_exact(n).skip(self.layer * n_head).take(n_head);
        if let Some(head) = self.head {
            return heads.nth(head).unwrap_or_default().to_vec();
        }
        let mut sums = vec![0_usize; n];
        for weights in heads {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += usize::from(*weight);
            }
        }
        sums.into_iter().map(|sum| u16::try_from((sum + n_head / 2) / n_head).unwrap_or(u16::MAX)).collect()
    }
}

/// A map of a head: the attention among the last tokens of the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Names of the tokens, which are the rows and columns.
    pub tokens: Vec<String>,
    /// Weights in thousandths, row by row.
    pub weights: Vec<u16>,
}

impl Map {
    /// The map of a head.
    pub fn of(maps: &Maps, head: Head, shape: (usize, usize)) -> Self {
        Self { tokens: maps.tokens.clone(), weights: head.of(&maps.weights, shape) }
    }

    /// A row's attention to a column, in thousandths.
    fn cell(&self, row: usize, column: usize) -> u16 {
        self.weights.get(row * self.tokens.len() + column).copied().unwrap_or(0)
    }

    /// The description of a cell.
    pub fn cell_words(&self, row: usize, column: usize) -> Option<Text> {
        let (from, to) = (self.tokens.get(row)?, self.tokens.get(column)?);
        (column <= row).then(|| text::demo_looks(visible(from), visible(to), share(self.cell(row, column))))
    }

    /// The cells by shade.
    pub fn grades(&self) -> Vec<Grade> {
        let n = self.tokens.len();
        let mut paths = vec![String::new(); N_GRADES];
        for row in 0..n {
            for column in 0..=row {
                let grade = grade_of(self.cell(row, column));
                if grade > 0 {
                    paths[grade - 1].push_str(&format!("M{column} {row}h1v1h-1z"));
                }
            }
        }
        let grades = paths.into_iter().enumerate().filter(|(_, path)| !path.is_empty());
        grades.map(|(index, path)| Grade { grade: index + 1, path }).collect()
    }
}

/// The cells of a map with the same shade; darker cells have more weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Grade {
    /// The shade: 1 to [`N_GRADES`].
    pub grade: usize,
    /// Its cells, as an SVG path of unit squares.
    pub path: String,
}

/// The number of shades.
pub const N_GRADES: usize = 8;

/// The shade is proportional to the square root: most shares are small and would otherwise have the same shade.
fn grade_of(thousandths: u16) -> usize {
    let share = (f64::from(thousandths.min(1000)) / 1000.0).sqrt();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the number of shades")]
    let grade = (share * N_GRADES as f64).round() as usize;
    grade
}

/// Formats thousandths as a percentage.
pub fn share(thousandths: u16) -> String {
    text::table().number(&format!("{} %", decimal::ratio(u64::from(thousandths), 10, 1)))
}

/// Formats thousandths as a percentage that stays on one line.
fn unbroken(thousandths: u16) -> String {
    share(thousandths).replace(' ', "\u{a0}")
}

/// What a token attends to with a head.
#[derive(Clone, Debug, PartialEq)]
pub struct Attended {
    /// Index of the token.
    pub token: usize,
    /// Index of the first token that it attends to.
    pub first: usize,
    /// Weights in thousandths, of the tokens from `first` to `token`.
    pub weights: Vec<u16>,
}

/// The number of tokens that the description of a token's attention lists.
const N_LISTED: usize = 5;

impl Attended {
    /// The part of a head.
    pub fn of(attention: &TokenAttention, head: Head, shape: (usize, usize)) -> Option<Self> {
        let [token, first] = [attention.token, attention.first].map(|index| usize::try_from(index).ok());
        Some(Self { token: token?, first: first?, weights: head.of(&attention.weights, shape) })
    }

    /// The shade of each token from `first` on.
    pub fn grades(&self) -> Vec<usize> {
        self.weights.iter().map(|weight| grade_of(*weight)).collect()
    }

    /// The tokens with the most weight, the first of which has the most.
    fn strongest(&self) -> Vec<(usize, u16)> {
        let mut tokens: Vec<(usize, u16)> = (self.first..).zip(self.weights.iter().copied()).collect();
        tokens.retain(|(_, weight)| *weight > 0);
        tokens.sort_by_key(|(index, weight)| (u16::MAX - weight, self.token - index));
        tokens.truncate(N_LISTED);
        tokens
    }

    /// The description: the token, and those that it attends to most.
    pub fn words(&self, demo: &Demo, head: Head) -> Option<Text> {
        let name = |index: usize| Some(visible(demo.pieces.get(index)?.name()));
        let listed = self.strongest().into_iter().filter_map(|(index, weight)| {
            Some(match self.token - index {
                0 => text::demo_attended_itself(unbroken(weight)),
                back => text::demo_attended(name(index)?, back as u64, unbroken(weight)),
            })
        });
        Some(text::demo_attends(head.text(), name(self.token)?, text::list(Separator::Semicolon, listed)))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Piece, *};

    const SHAPE: (usize, usize) = (1, 2);

    #[test]
    fn a_head_has_its_part_of_the_weights_and_a_layer_the_mean() {
        let weights: Vec<u16> = (0..12).collect();
        let head = |layer, head| Head { layer, head }.of(&weights, (2, 3));
        assert_eq!([head(0, Some(0)), head(0, Some(2)), head(1, Some(1))], [vec![0, 1], vec![4, 5], vec![8, 9]]);
        assert_eq!([head(0, None), head(1, None)], [vec![2, 3], vec![8, 9]]);
        assert_eq!(
            [head(0, Some(3)), head(2, Some(0)), Head::default().of(&[], SHAPE)],
            [const { Vec::<u16>::new() }; 3]
        );
    }

    #[test]
    fn a_map_has_darker_cells_for_more_and_none_above_its_diagonal() {
        let tokens = vec!["a".to_owned(), " ".to_owned()];
        let maps = Maps { tokens, weights: vec![1000, 0, 250, 750, 1000, 0, 0, 1000] };
        let map = Map::of(&maps, Head::default(), SHAPE);
        let grades = map.grades();
        let of = |grade: usize| grades.iter().find(|found| found.grade == grade).map(|found| found.path.as_str());
        assert_eq!((of(8), of(4), of(7)), (Some("M0 0h1v1h-1z"), Some("M0 1h1v1h-1z"), Some("M1 1h1v1h-1z")));
        assert_eq!(map.cell_words(0, 1), None);
        let said = map.cell_words(1, 0).expect("a cell").to_string();
        assert!(said.contains('·') && said.contains("25.0 %"), "{said}");
    }

    #[test]
    fn the_five_tokens_with_the_most_weight_are_listed() {
        let words = ["x", "a", " ", "b", "a", "c", "d"];
        let pieces = words.map(|words| Piece { words: words.to_owned(), token: None }).into();
        let demo = Demo { pieces, ..Demo::default() };
        let attention = TokenAttention { token: 6, first: 1, weights: [[50, 400, 100, 50, 0, 400], [0; 6]].concat() };
        let attended = Attended::of(&attention, Head::default(), SHAPE).expect("small");
        assert_eq!(attended.strongest(), [(6, 400), (2, 400), (3, 100), (4, 50), (1, 50)]);
        assert_eq!(attended.grades(), [2, 5, 3, 2, 0, 5]);
        let said = attended.words(&demo, Head::default()).expect("a token").to_string();
        let expected = "Layer 0, head 0. d attends to: itself 40.0 %; · (4 back) 40.0 %; b (3 back) 10.0 %; a (2 back) 5.0 %; a (5 back) 5.0 %.";
        assert_eq!(said.replace('\u{a0}', " "), expected);
    }
}
