//! Descriptions of common GPU errors from NVIDIA's catalogue of Xids
//! (<https://docs.nvidia.com/deploy/xid-errors/>).

use headroom_text::{self as text, Key, Text};

/// Message for an Xid.
pub fn sentence(xid: u64) -> Text {
    match meaning(xid) {
        Some(meaning) => text::xid_reported(xid, meaning),
        None => text::xid_unnamed(xid),
    }
}

fn meaning(xid: u64) -> Option<Key> {
    Some(match xid {
        13 => text::XID_13,
        31 => text::XID_31,
        43 => text::XID_43,
        45 => text::XID_45,
        48 => text::XID_48,
        61 | 62 => text::XID_61,
        63 => text::XID_63,
        64 => text::XID_64,
        74 => text::XID_74,
        79 => text::XID_79,
        92 => text::XID_92,
        94 => text::XID_94,
        95 => text::XID_95,
        119 | 120 => text::XID_119,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_number_and_words_where_they_are_known() {
        assert_eq!(
            sentence(79).to_string(),
            "The driver reported Xid 79 for the run's GPU: the GPU has fallen off the bus."
        );
        assert_eq!(sentence(7777).to_string(), "The driver reported Xid 7777 for the run's GPU.");
    }
}
