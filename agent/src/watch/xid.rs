//! The driver's errors of cards in words: the best known, as NVIDIA's catalogue of Xids has them
//! (<https://docs.nvidia.com/deploy/xid-errors/>).

/// A sentence of an error.
pub fn sentence(xid: u64) -> String {
    match meaning(xid) {
        Some(meaning) => format!("The driver reported Xid {xid} of its card: {meaning}."),
        None => format!("The driver reported Xid {xid} of its card."),
    }
}

fn meaning(xid: u64) -> Option<&'static str> {
    Some(match xid {
        13 => "a kernel did what the card cannot, as an access out of bounds",
        31 => "a kernel touched memory that is not its own",
        43 => "a kernel was ended after an error of its program",
        45 => "what was running was ended, as after an error before it or by a signal",
        48 => "an error in its memory that could not be mended",
        61 | 62 => "its own controller halted",
        63 => "a broken part of its memory was taken out of use",
        64 => "a broken part of its memory could not be taken out of use",
        74 => "an error of NVLink",
        79 => "the GPU has fallen off the bus",
        92 => "many errors in its memory had to be mended",
        94 => "an error in its memory that was contained, and ended the program it hit",
        95 => "an error in its memory that was not contained; the card has to be reset",
        119 | 120 => "its system processor (GSP) did not answer",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_number_and_words_where_they_are_known() {
        assert_eq!(sentence(79), "The driver reported Xid 79 of its card: the GPU has fallen off the bus.");
        assert_eq!(sentence(7777), "The driver reported Xid 7777 of its card.");
    }
}
