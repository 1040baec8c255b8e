//! Links from the rig to other pages: a GPU for the calculator, and the browser's name for its token.

use headroom_planner::{link::encode_text, session::Options};

use super::{
    Rig,
    gpu::MonitoredGpu,
    processes::{bytes_of_others, run_on},
};

/// The calculator's link for a GPU, as a fragment: the GPU with its memory as NVML reports it, the memory of other
/// processes, and the config of its run. The memory of that run counts as free. `None` if a plan would be for another
/// GPU: the state of a lost one is unknown, and with MIG no run has the whole GPU.
///
/// The calculator estimates the CUDA context from the architecture, and says so. NVML's figure for a process includes
/// PyTorch's memory, so the context cannot be separated from it.
pub fn plan_for(rig: &Rig, gpu: &MonitoredGpu) -> Option<String> {
    if !gpu.info.present || gpu.info.mig_enabled.get() == Some(&true) {
        return None;
    }
    let own = run_on(rig, gpu);
    let reserved = gpu.sample.as_ref().and_then(|sample| sample.memory_reserved_bytes.get().copied());
    let options = Options {
        other_processes_bytes: bytes_of_others(gpu, own).unwrap_or(0),
        ..Options::on_gpu(gpu.info.listed_as.as_deref(), gpu.total_bytes(), reserved)
    };
    Some(encode_text(own.and_then(|run| run.config.as_deref()).unwrap_or_default(), &options))
}

/// The one-time code in a pairing link's fragment.
pub fn pairing_code(fragment: &str) -> Option<String> {
    let fragment = fragment.strip_prefix('#').unwrap_or(fragment);
    let code = fragment.split('&').find_map(|part| part.strip_prefix("pair="))?;
    let is_code = !code.is_empty() && code.len() <= CODE_CHARS_MAX;
    (is_code && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))).then(|| code.to_owned())
}

/// The longest code that an agent prints.
const CODE_CHARS_MAX: usize = 200;

/// A name for this browser in the owner's list of tokens, from its user agent.
pub fn device_name(user_agent: &str) -> String {
    let first = |names: &[(&str, &'static str)]| {
        names.iter().find(|(sign, _)| user_agent.contains(sign)).map(|(_, name)| *name)
    };
    // Each user agent contains the names of the earlier browsers too.
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
    use headroom_protocol::{
        ServerMessage,
        gpu::Gpu,
        reading::{MissingReason, Reading},
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
        rig.gpus[0].sample = Some(sample(0, 1));
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, Some(6 << 30), Some("a"))])), false);
        rig
    }

    /// The calculator's session for the first GPU's link.
    fn opened(rig: &Rig) -> Session {
        Session::open(&plan_for(rig, &rig.gpus[0]).expect("a GPU"), None).expect("a link").session
    }

    #[test]
    fn the_calculator_opens_with_the_gpu_as_it_is_now() {
        let rig = rig(Some("GeForce RTX 4070"));
        let session = opened(&rig);
        assert_eq!(session.options.gpu, "GeForce RTX 4070");
        // 12,282 MiB by NVML, of which the driver reserves 300.
        assert_eq!(session.options.vram_bytes, Some(11_982 << 20));
        assert_eq!((session.options.other_processes_bytes, session.options.context_bytes), (1 << 30, None));
        assert_eq!(session.text, "batch_size = 8\n");
    }

    #[test]
    fn a_gpu_beyond_the_table_is_planned_by_its_memory() {
        let options = opened(&rig(None)).options;
        assert_eq!((options.gpu.as_str(), options.vram_bytes), ("", Some(11_982 << 20)));
        let old_driver = |listed_as: Option<&str>| {
            let mut rig = rig(listed_as);
            let sample = rig.gpus[0].sample.as_mut().expect("a sample");
            sample.memory_reserved_bytes = Reading::missing(MissingReason::OldDriver);
            opened(&rig).options.vram_bytes
        };
        assert_eq!(old_driver(None), Some(12_282 << 20));
        assert_eq!(old_driver(Some("H200")), None, "the table has CUDA's figure for it");
    }

    #[test]
    fn memory_without_owner_is_not_assigned_to_a_run() {
        let mut rig = rig(Some("GeForce RTX 4070"));
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, None, Some("a"))])), false);
        assert_eq!(opened(&rig).options.other_processes_bytes, 0);
        rig.runs.clear();
        assert_eq!(opened(&rig).options.other_processes_bytes, 7 << 30);
    }

    #[test]
    fn a_gpu_that_is_lost_or_split_makes_no_link() {
        let unread = MonitoredGpu::new(gpu(0));
        assert!(plan_for(&Rig::default(), &unread).is_some_and(|link| link.contains("gpu=")));
        let lost = MonitoredGpu::new(Gpu { present: false, ..gpu(0) });
        assert_eq!(plan_for(&Rig::default(), &lost), None);
        let split = MonitoredGpu::new(Gpu { mig_enabled: Reading::Is(true), ..gpu(0) });
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
