//! Properties of the corpus that readers and models rely on.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Enough for every plot to occur many times.
const SAMPLE_BYTES: usize = 600_000;

fn sample() -> String {
    corpus(SEED, SAMPLE_BYTES)
}

fn stories(text: &str) -> Vec<&str> {
    text.split(&format!("\n\n{SEPARATOR}\n\n")).filter(|story| !story.is_empty()).collect()
}

/// FNV-1a hash, which detects any changed byte.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

fn numbers(text: &str) -> Vec<u32> {
    text.split(|char: char| !char.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split(|char: char| !char.is_ascii_alphanumeric() && char != '+' && char != '=')
        .filter(|word| !word.is_empty())
        .collect()
}

#[test]
fn a_seed_gives_the_same_bytes_everywhere() {
    let text = sample();
    assert_eq!(digest(&text.as_bytes()[..100_000]), 0x86BA_78F8_5DC9_0D95, "the stories have changed");
    assert!(corpus(SEED, 2 * SAMPLE_BYTES).starts_with(&text), "a shorter corpus is a prefix of a longer one");
    assert_ne!(corpus(SEED + 1, 1000), corpus(SEED, 1000));
}

#[test]
fn the_whole_is_about_as_long_as_said() {
    let text = corpus(SEED, BYTES);
    assert!((BYTES..BYTES + 4096).contains(&text.len()), "{}", text.len());
    let stories = stories(&text);
    let distinct: BTreeSet<&str> = stories.iter().copied().collect();
    assert!(distinct.len() * 100 >= stories.len() * 99, "{} of {} are distinct", distinct.len(), stories.len());
    let sentences: BTreeSet<&str> = text.split_inclusive(['.', '!', '?']).collect();
    assert!(sentences.len() > 20_000, "{} sentences", sentences.len());
}

#[test]
fn a_story_has_a_title_paragraphs_and_an_end() {
    let text = sample();
    assert!(text.ends_with(&format!("\n\nThe end.\n\n{SEPARATOR}\n\n")));
    for story in stories(&text) {
        let mut paragraphs = story.split("\n\n");
        let title = paragraphs.next().unwrap_or_default();
        assert!(title.starts_with("# ") && !title.contains('\n') && title.len() < 60, "{title}");
        let body: Vec<&str> = paragraphs.collect();
        assert!((3..=6).contains(&body.len()), "{story}");
        assert_eq!(body.last(), Some(&"The end."), "{story}");
        for paragraph in &body {
            let first = paragraph.trim_start_matches('"').chars().next();
            assert!(first.is_some_and(|first| first.is_ascii_uppercase() || first.is_ascii_digit()), "{story}");
            assert!(paragraph.ends_with(['.', '!', '?', '"']), "{story}");
            assert_eq!(paragraph.matches('"').count() % 2, 0, "{story}");
        }
        assert!((150..1200).contains(&story.len()), "{} bytes:\n{story}", story.len());
    }
}

#[test]
fn the_characters_are_few_and_plain() {
    let text = sample();
    let characters: BTreeSet<char> = text.chars().collect();
    assert!(text.is_ascii());
    assert!((60..=76).contains(&characters.len()), "{}: {characters:?}", characters.len());
    for wrong in ["  ", " \n", "\n ", " ,", " .", "..", "{", "[", "|", "_", ",,", " a an ", "\n\n\n"] {
        assert!(!text.contains(wrong), "{wrong:?}");
    }
}

#[test]
fn articles_fit_the_word_that_follows() {
    for pair in words(&sample()).windows(2) {
        let vowel = pair[1].to_ascii_lowercase().starts_with(['a', 'e', 'i', 'o', 'u']);
        match pair[0] {
            "a" => assert!(!vowel, "{pair:?}"),
            "an" | "An" => assert!(vowel, "{pair:?}"),
            "1" => assert!(pair[1] == "2" || !pair[1].ends_with('s') || !is_counted(pair[1]), "{pair:?}"),
            number if number.parse::<u32>().is_ok_and(|number| number > 1) => {
                assert!(!COUNTED.contains(&pair[1]), "{pair:?}");
            }
            _ => {}
        }
    }
}

/// Nouns that follow a number.
const COUNTED: [&str; 8] = ["apple", "egg", "coin", "day", "block", "shell", "tree", "person"];

fn is_counted(word: &str) -> bool {
    COUNTED.iter().any(|noun| word == format!("{noun}s"))
}

#[test]
fn every_sum_is_right() {
    let text = sample();
    let mut n_sums = BTreeMap::new();
    for five in words(&text).windows(5) {
        let [a, sign, b, is, c] = [five[0], five[1], five[2], five[3], five[4]];
        let (Ok(a), Ok(b), Ok(c)) = (a.parse::<u32>(), b.parse::<u32>(), c.parse::<u32>()) else { continue };
        let right = match (sign, is) {
            ("plus", "is") | ("and", "make") | ("+", "=") => a + b == c,
            ("minus", "is") => a - b == c,
            _ => continue,
        };
        assert!(right, "{five:?}");
        *n_sums.entry(sign).or_insert(0) += 1;
    }
    for (sign, least) in [("plus", 50), ("and", 10), ("+", 5), ("minus", 40)] {
        assert!(n_sums.get(sign).is_some_and(|n| *n >= least), "{sign}: {n_sums:?}");
    }
    for six in words(&text).windows(6).filter(|six| six[1..3] == ["take", "away"]) {
        assert_eq!(numbers(six[0])[0] - numbers(six[3])[0], numbers(six[5])[0], "{six:?}");
    }
}

/// "Now she had 7 apples": 7 is the sum or the difference of the previous number and another one in the story.
#[test]
fn numbers_in_stories_add_up() {
    let text = sample();
    let mut n_checked = 0;
    for story in stories(&text) {
        for (at, _) in story.match_indices("Now ") {
            let sentence = story[at..].split_inclusive(['.', '!']).next().unwrap_or_default();
            let counted = [" had ", " were ", " was "].iter().any(|verb| sentence.contains(verb));
            // The number one is written as a word when an item changes hands.
            let Some(result) =
                numbers(sentence).first().copied().filter(|_| counted && !story[..at].ends_with("one berry. "))
            else {
                continue;
            };
            let before = numbers(&story[..at]);
            let Some((last, earlier)) = before.split_last() else { panic!("{story}") };
            let by_hand = story[..at].contains(" gave ") && story[..at].contains(" one ");
            let follows = earlier.iter().any(|n| n + last == result || n.abs_diff(*last) == result);
            let one_less = before.iter().any(|n| n.abs_diff(result) == 1);
            assert!(follows || by_hand && one_less, "{sentence:?} in\n{story}");
            n_checked += 1;
        }
        for (at, _) in story.match_indices("each of them had ") {
            let half = numbers(&story[at..])[0];
            assert!(numbers(&story[..at]).contains(&(2 * half)), "{story}");
        }
    }
    assert!(n_checked > 200, "{n_checked} results");
}

#[test]
fn pronouns_agree_with_the_names() {
    let text = sample();
    let table = Words::parse(include_str!("words.txt"));
    let of = |lists: [&str; 3]| -> BTreeSet<&str> {
        lists
            .iter()
            .flat_map(|list| &table.list(list).rows)
            .map(|row| row[0].split(' ').next_back().unwrap_or_default())
            .collect()
    };
    let (women, men) = (of(["girl", "she", "aunt"]), of(["boy", "he", "uncle"]));
    assert!(women.is_disjoint(&men));
    let mut n_checked = 0;
    for story in stories(&text) {
        let words = words(story);
        let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
        let others = has(&["snowman", "man", "woman", "mother", "seller"]);
        let (shes, hes) = (["she", "She", "her", "Her"], ["he", "He", "him", "his", "His"]);
        if !others && !words.iter().any(|word| women.contains(word)) {
            assert!(!has(&shes), "{story}");
            n_checked += 1;
        }
        if !others && !words.iter().any(|word| men.contains(word)) {
            assert!(!has(&hes), "{story}");
            n_checked += 1;
        }
        for three in words.windows(3).filter(|three| three[1] == "and") {
            assert!(!(women.contains(three[0]) && three[2] == "his"), "{story}");
            assert!(!(men.contains(three[0]) && three[2] == "her"), "{story}");
        }
    }
    assert!(n_checked > 50, "{n_checked} stories have one sex alone");
}

#[test]
fn every_line_of_the_tables_can_be_reported() {
    let words = Words::parse(include_str!("words.txt"));
    let plots = Plots::parse(include_str!("stories.txt"));
    assert!(plots.plots.len() >= 30, "{} plots", plots.plots.len());
    let mut rng = Rng::new(7);
    for plot in &plots.plots {
        assert!(!plot.titles.is_empty() && plot.beats.len() >= 4, "{}", plot.titles[0]);
        for _ in 0..8 {
            let scene = Scene::draw(&words, &plots, plot, &mut rng);
            for line in plot.titles.iter().chain(plot.beats.iter().flat_map(|beat| &beat.lines)) {
                let sentence = scene.tell(line, &mut rng);
                assert!(
                    !sentence.is_empty() && !sentence.contains(['{', '}', '[', ']', '|']),
                    "{}: {line}",
                    plot.titles[0]
                );
            }
        }
    }
}
