//! Ways from the rig to other places: a card into the calculator, a browser's name for its token.

use headroom_shared::{link::encode_text, session::Options, units::GIB};

use super::{Rig, card::Card, processes::bytes_of_run};

/// The calculator's link for a card, as a fragment: its name and memory as they are, what others have of it now, and the config of
/// the run on it, whose own share is free for a run.
pub fn plan_for(rig: &Rig, card: &Card) -> String {
    let own = rig
        .runs
        .iter()
        .map(|watched| &watched.run)
        .find(|run| !run.status.has_ended() && run.gpus.contains(&card.gpu.uuid));
    let used = card.sample.as_ref().and_then(|sample| sample.memory_used_bytes.get().copied()).unwrap_or(0);
    let own_bytes = own.and_then(|run| bytes_of_run(card, &run.id)).unwrap_or(0);
    let mut gpu = card.gpu.name.trim_start_matches("NVIDIA ").to_owned();
    // The table of cards stays with the calculator. A GeForce's name may be of several sizes, and takes its own along.
    if let (true, Some(total)) = (gpu.contains("GeForce"), card.total_bytes()) {
        gpu = format!("{gpu} {}GB", total.div_ceil(GIB));
    }
    let options = Options { gpu, other_processes_bytes: used.saturating_sub(own_bytes), ..Options::default() };
    encode_text(own.and_then(|run| run.config.as_deref()).unwrap_or_default(), &options)
}

/// The one-use code of a pairing link's fragment.
pub fn pairing_code(fragment: &str) -> Option<String> {
    let fragment = fragment.strip_prefix('#').unwrap_or(fragment);
    let code = fragment.split('&').find_map(|part| part.strip_prefix("pair="))?;
    let is_code = !code.is_empty() && code.len() <= CODE_CHARS_MAX;
    (is_code && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))).then(|| code.to_owned())
}

/// No agent prints a longer one.
const CODE_CHARS_MAX: usize = 200;

/// A name for this browser in the owner's list of tokens, of what it says of itself.
pub fn device_name(user_agent: &str) -> String {
    let first = |names: &[(&str, &'static str)]| {
        names.iter().find(|(sign, _)| user_agent.contains(sign)).map(|(_, name)| *name)
    };
    // Each says the names of those before it too.
    let browser = first(&[
        ("Firefox/", "Firefox"),
        ("Edg", "Edge"),
        ("OPR/", "Opera"),
        ("CriOS", "Chrome"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
    ]);
    let system = first(&[
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("Mac OS", "macOS"),
        ("CrOS", "ChromeOS"),
        ("Linux", "Linux"),
    ]);
    [browser, system].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use headroom_shared::{hardware::find, protocol::ServerMessage};

    use super::*;
    use crate::state::{
        rig::sample::{gpu, hello, run, sample, slow},
        session::Session,
    };

    fn rig(name: &str) -> Rig {
        let mut rig = Rig::default();
        let mut hello = hello(1, vec![run("a")], 0);
        hello.gpus[0].name = name.to_owned();
        rig.hear(ServerMessage::Hello(Box::new(hello)), false);
        rig.cards[0].sample = Some(sample(0, 1));
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, Some(6 << 30), Some("a"))])), false);
        rig
    }

    /// What the calculator makes of the first card's link.
    fn opened(rig: &Rig) -> Session {
        Session::open(&plan_for(rig, &rig.cards[0]), None).expect("a link").session
    }

    #[test]
    fn the_calculator_opens_with_the_card_as_it_is_now() {
        let rig = rig("NVIDIA GeForce RTX 4070");
        let session = opened(&rig);
        assert_eq!(session.options.gpu, "GeForce RTX 4070 12GB");
        assert_eq!((session.options.vram_bytes, session.options.other_processes_bytes), (None, 1 << 30));
        assert_eq!(session.text, "batch_size = 8\n");
    }

    #[test]
    fn the_calculator_finds_the_card_by_what_the_link_calls_it() {
        for (name, found) in [
            ("NVIDIA GeForce RTX 3060", "GeForce RTX 3060 12GB"),
            ("NVIDIA GeForce RTX 4070", "GeForce RTX 4070"),
            ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
        ] {
            let session = opened(&rig(name));
            assert_eq!(find(&session.options.gpu).map(|device| &*device.name), Ok(found));
        }
    }

    #[test]
    fn a_card_of_which_nothing_is_read_makes_a_link_all_the_same() {
        assert!(plan_for(&Rig::default(), &Card::new(gpu(0))).contains("gpu="));
    }

    #[test]
    fn a_code_is_read_from_its_fragment_and_nothing_else_is() {
        assert_eq!(pairing_code("#pair=ab-C_9").as_deref(), Some("ab-C_9"));
        for none in ["", "#", "#pair=", "#1&pair", "#pair=a b", "#repair=x", "#pair=%3Cscript%3E"] {
            assert_eq!(pairing_code(none), None, "{none}");
        }
        assert_eq!(pairing_code(&format!("#pair={}", "a".repeat(1000))), None);
    }

    #[test]
    fn browsers_have_names() {
        let pixel = "Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Mobile Safari/537.36";
        assert_eq!(device_name(pixel), "Chrome, Android");
        assert_eq!(device_name(""), "");
    }
}
