//! Ways from the rig to other places: a card into the calculator, a browser's name for its token.

use headroom_shared::{link::encode_text, session::Options};

use super::{
    Rig,
    card::Card,
    processes::{bytes_of_others, run_on},
};

/// The calculator's link for a card, as a fragment: the card with its memory as NVML measures it, what others have of it
/// now, and the config of the run on it, whose own share is free for a run. Nothing where a plan would be of another card:
/// of one that is lost nobody knows what it has, and of one that is split no run has all.
///
/// The context is left to the calculator, which estimates it by the architecture and says so: what NVML tells of a process
/// has PyTorch's memory in it, and nothing tells the two apart.
pub fn plan_for(rig: &Rig, card: &Card) -> Option<String> {
    if !card.gpu.present || card.gpu.mig_enabled.get() == Some(&true) {
        return None;
    }
    let own = run_on(rig, card);
    let reserved = card.sample.as_ref().and_then(|sample| sample.memory_reserved_bytes.get().copied());
    let options = Options {
        other_processes_bytes: bytes_of_others(card, own).unwrap_or(0),
        ..Options::on_card(card.gpu.listed_as.as_deref(), card.total_bytes(), reserved)
    };
    Some(encode_text(own.and_then(|run| run.config.as_deref()).unwrap_or_default(), &options))
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
    use headroom_shared::protocol::{
        ServerMessage,
        gpu::Gpu,
        reading::{Reading, Why},
    };

    use super::*;
    use crate::state::{
        rig::sample::{gpu, hello, run, sample, slow},
        session::Session,
    };

    fn rig(listed_as: Option<&str>) -> Rig {
        let mut rig = Rig::default();
        let mut hello = hello(1, vec![run("a")], 0);
        hello.gpus[0].listed_as = listed_as.map(str::to_owned);
        rig.hear(ServerMessage::Hello(Box::new(hello)), false);
        rig.cards[0].sample = Some(sample(0, 1));
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, Some(6 << 30), Some("a"))])), false);
        rig
    }

    /// What the calculator makes of the first card's link.
    fn opened(rig: &Rig) -> Session {
        Session::open(&plan_for(rig, &rig.cards[0]).expect("a card"), None).expect("a link").session
    }

    #[test]
    fn the_calculator_opens_with_the_card_as_it_is_now() {
        let rig = rig(Some("GeForce RTX 4070"));
        let session = opened(&rig);
        assert_eq!(session.options.gpu, "GeForce RTX 4070");
        // 12,282 MiB by NVML, of which the driver keeps 300.
        assert_eq!(session.options.vram_bytes, Some(11_982 << 20));
        assert_eq!((session.options.other_processes_bytes, session.options.context_bytes), (1 << 30, None));
        assert_eq!(session.text, "batch_size = 8\n");
    }

    #[test]
    fn a_card_beyond_the_table_is_planned_by_its_memory() {
        let options = opened(&rig(None)).options;
        assert_eq!((options.gpu.as_str(), options.vram_bytes), ("", Some(11_982 << 20)));
        let old_driver = |listed_as: Option<&str>| {
            let mut rig = rig(listed_as);
            let sample = rig.cards[0].sample.as_mut().expect("a sample");
            sample.memory_reserved_bytes = Reading::missing(Why::OldDriver);
            opened(&rig).options.vram_bytes
        };
        assert_eq!(old_driver(None), Some(12_282 << 20));
        assert_eq!(old_driver(Some("H200")), None, "the table knows what CUDA gives of it");
    }

    #[test]
    fn what_a_run_has_is_not_taken_for_another_s_where_nobody_says_whose_it_is() {
        let mut rig = rig(Some("GeForce RTX 4070"));
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, None, Some("a"))])), false);
        assert_eq!(opened(&rig).options.other_processes_bytes, 0);
        rig.runs.clear();
        assert_eq!(opened(&rig).options.other_processes_bytes, 7 << 30);
    }

    #[test]
    fn a_card_that_is_lost_or_split_makes_no_link() {
        let unread = Card::new(gpu(0));
        assert!(plan_for(&Rig::default(), &unread).is_some_and(|link| link.contains("gpu=")));
        let lost = Card::new(Gpu { present: false, ..gpu(0) });
        assert_eq!(plan_for(&Rig::default(), &lost), None);
        let split = Card::new(Gpu { mig_enabled: Reading::Is(true), ..gpu(0) });
        assert_eq!(plan_for(&Rig::default(), &split), None);
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
