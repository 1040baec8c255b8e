//! Options of every plan: the GPU, other processes, the allocator, and the form of the answer.

use headroom_planner::{
    hardware::{Device, by_popularity, find, search},
    memory::{
        allocator::{AllocConf, AllocConfError},
        message::TorchVersion,
        tuned::TunedAllocator,
    },
    session::Options,
};
use headroom_text::units::{MIB, parse_size};

use crate::cli::args::{Flag, InvalidValue, among};

/// Arguments of a plan.
pub trait PlanArguments {
    /// The options to fill.
    fn options(&mut self) -> &mut Options;

    /// Whether to print JSON.
    fn json(&mut self) -> &mut bool;

    /// Records that the GPU was given.
    fn note_gpu(&mut self) {}

    /// Requests only a link to the plan.
    fn request_link(&mut self) {}

    /// Writes the run as a snapshot of PyTorch to a file.
    fn write_snapshot(&mut self, _file: &str) {}

    /// The GPUs of the table of `headroom fit`.
    fn gpus(&mut self) -> &mut Option<Vec<&'static Device>>;
}

/// The value of an option that selects every known GPU.
pub const ALL: &str = "all";

impl<T: PlanArguments> Flag<T> {
    /// The `--gpu` option.
    pub const GPU: Self = Self {
        name: "gpu",
        value: Some("NAME"),
        doc: "GPU model, such as \"RTX 4070\", rtx3060 or \"A100 80GB\"\n[default: RTX 4070; `headroom gpus` lists all]",
        set: |request, name| {
            if let Some(refusal) = memory_for_name(name) {
                return Err(refusal);
            }
            name.clone_into(&mut request.options().gpu);
            request.note_gpu();
            Ok(())
        },
    };

    /// The `--vram` option.
    pub const VRAM: Self = Self {
        name: "vram",
        value: Some("SIZE"),
        doc: "Total GPU memory, such as 11.69GiB: instead of a name, or\nif CUDA reports another total than the table",
        set: |request, size| put(&mut request.options().vram_bytes, Some(bytes(size, "GiB")?)),
    };

    /// The `--other-processes` option.
    pub const OTHER_PROCESSES: Self = Self {
        name: "other-processes",
        value: Some("SIZE"),
        doc: "GPU memory that other programs use [default: 0]",
        set: |request, size| put(&mut request.options().other_processes_bytes, bytes(size, "GiB")?),
    };

    /// The `--context-bytes` option.
    pub const CONTEXT_BYTES: Self = Self {
        name: "context-bytes",
        value: Some("SIZE"),
        doc: "Size of the CUDA context [default: estimated from the GPU]",
        set: |request, size| put(&mut request.options().context_bytes, Some(bytes(size, "MiB")?)),
    };

    /// The `--expandable-segments` option.
    pub const EXPANDABLE_SEGMENTS: Self = Self {
        name: "expandable-segments",
        value: None,
        doc: "Use expandable segments\n(PYTORCH_ALLOC_CONF=expandable_segments:True)",
        set: |request, _| put(&mut request.options().expandable_segments, true),
    };

    /// The `--alloc-conf` option.
    pub const ALLOC_CONF: Self = Self {
        name: "alloc-conf",
        value: Some("SETTINGS"),
        doc: "Settings of the allocator as in PYTORCH_ALLOC_CONF,\nsuch as max_split_size_mb:64",
        set: |request, settings| {
            let conf = alloc_conf(settings)?;
            let options = request.options();
            options.expandable_segments |= conf.expandable_segments;
            put(&mut options.tuned, TunedAllocator::of(conf))
        },
    };

    /// The `--gpus` option.
    pub const GPUS: Self = Self {
        name: "gpus",
        value: Some("LIST"),
        doc: "GPUs of the table, separated by commas, or all\n[default: 10 common ones of 8 to 32 GB]",
        set: |request, list| {
            let all = || by_popularity().map(|(_, device)| device).collect();
            let named = || list.split(',').map(|name| find(name.trim()).map_err(|error| error.text().to_string()));
            let gpus = if list.eq_ignore_ascii_case(ALL) { all() } else { named().collect::<Result<_, _>>()? };
            put(request.gpus(), Some(gpus))
        },
    };

    /// The `--json` option.
    pub const JSON: Self = Self {
        name: "json",
        value: None,
        doc: "Print the answer as JSON, schema 1",
        set: |request, _| put(request.json(), true),
    };

    /// The `--link` option.
    pub const LINK: Self = Self {
        name: "link",
        value: None,
        doc: "Print only a link to this plan in the page of `headroom\nserve`",
        set: |request, _| {
            request.request_link();
            Ok(())
        },
    };

    /// The `--snapshot` option.
    pub const SNAPSHOT: Self = Self {
        name: "snapshot",
        value: Some("FILE"),
        doc: "Also write the run as a memory snapshot of PyTorch, for\npytorch.org/memory_viz",
        set: |request, file| {
            request.write_snapshot(file);
            Ok(())
        },
    };

    /// The `--torch` option.
    pub const TORCH: Self = Self {
        name: "torch",
        value: Some("VERSION"),
        doc: "PyTorch version, for error messages and the default dtype\non older GPUs [default: 2.11]",
        set: |request, version| {
            version.parse::<TorchVersion>().map_err(|error| error.to_string())?;
            version.clone_into(&mut request.options().torch);
            Ok(())
        },
    };
}

/// Assigns a value.
///
/// # Errors
/// None; the type is that of a setter.
pub fn put<T>(to: &mut T, value: T) -> Result<(), InvalidValue> {
    *to = value;
    Ok(())
}

/// Keys of the settings that are simulated.
const SIMULATED: [&str; 7] = [
    "expandable_segments",
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "roundup_power2_divisions",
];

/// Parses settings of the allocator. The error suggests a similar key.
fn alloc_conf(settings: &str) -> Result<AllocConf, InvalidValue> {
    settings.parse().map_err(|error: AllocConfError| InvalidValue {
        why: format!("cannot use {settings:?}: {error}"),
        meant: corrected(settings).filter(|meant| meant.parse::<AllocConf>().is_ok()),
    })
}

/// The settings with similar known keys, `:` instead of `=`, and values in range. `None` if an unknown key resembles none.
fn corrected(settings: &str) -> Option<String> {
    let settings = settings.replace('=', ":");
    let corrected = settings.split(',').map(|setting| {
        let Some((key, value)) = setting.split_once(':') else { return Some(setting.to_owned()) };
        let (key, value) = (key.trim(), value.trim());
        let is_known = SIMULATED.contains(&key) || key == "backend";
        let key = if is_known { key } else { among(SIMULATED.into_iter(), key)? };
        Some(format!("{key}:{}", value_in_range(key, value)))
    });
    Some(corrected.collect::<Option<Vec<_>>>()?.join(","))
}

/// The nearest value that PyTorch accepts, as far as it is known; otherwise the value.
fn value_in_range(key: &str, value: &str) -> String {
    let number = value.parse::<f64>();
    match (key, number) {
        ("backend", _) => "native".to_owned(),
        ("expandable_segments", _) if ["true", "1"].contains(&&*value.to_lowercase()) => "True".to_owned(),
        ("expandable_segments", _) => "False".to_owned(),
        ("max_split_size_mb" | "max_non_split_rounding_mb", Ok(mib)) if mib < 20.0 => "20".to_owned(),
        ("large_segment_size_mb", Ok(mib)) if mib <= 10.0 => "11".to_owned(),
        // A percentage.
        ("garbage_collection_threshold" | "per_process_memory_fraction", Ok(percent))
            if percent > 1.0 && percent < 100.0 =>
        {
            (percent / 100.0).to_string()
        }
        _ => value.to_owned(),
    }
}

/// Remarks on settings of the allocator, one sentence each.
pub fn allocator_remarks(options: &Options) -> Vec<String> {
    let Some(tuned) = options.tuned else { return Vec::new() };
    let mut remarks = Vec::new();
    if tuned.conf().ignores_collection() {
        remarks.push(
            "garbage_collection_threshold has no effect: PyTorch collects only with a per_process_memory_fraction below 1."
                .to_owned(),
        );
    }
    if options.torch.parse() != Ok(TorchVersion::RECORDED) {
        let recorded = TorchVersion::RECORDED;
        remarks.push(format!("The settings of --alloc-conf are simulated as those of PyTorch {recorded}."));
    }
    remarks
}

/// Maximum number of GPUs listed for an amount of memory.
const GPUS_LISTED: usize = 8;

/// The error for an amount of memory where a GPU's name is expected, with the GPUs that have it, the most common first.
fn memory_for_name(name: &str) -> Option<InvalidValue> {
    if !name.starts_with(|first: char| first.is_ascii_digit()) || find(name).is_ok() {
        return None;
    }
    let gpus: Vec<&str> = search(name).iter().map(|(_, device)| &*device.name).collect();
    let size = parse_size(&format!("{}GB", name.trim().trim_end_matches(|last: char| last.is_ascii_alphabetic())));
    if gpus.is_empty() || size.is_err() {
        return None;
    }
    let listed = gpus[..gpus.len().min(GPUS_LISTED)].join(", ");
    let more = match gpus.len().saturating_sub(GPUS_LISTED) {
        0 => String::new(),
        n => format!(" and {n} more (`headroom gpus {}` lists them)", name.split_whitespace().collect::<String>()),
    };
    let why = format!("{name:?} is an amount of memory, which these GPUs have: {listed}{more}; --vram gives an amount");
    Some(why.into())
}

/// Parses a size. A number of a few bytes lacks a unit; the hint adds `unit`, or MiB for a large number.
///
/// # Errors
/// The value is not a size, or a few bytes.
pub fn bytes(size: &str, unit: &str) -> Result<u64, InvalidValue> {
    let bytes = parse_size(size).map_err(|error| error.to_string())?;
    let number = size.trim();
    if bytes == 0 || bytes >= MIB || !number.ends_with(|last: char| last.is_ascii_digit() || last == '.') {
        return Ok(bytes);
    }
    let unit = if bytes < 512 { unit } else { "MiB" };
    Err(InvalidValue { why: format!("{number:?} is {bytes} bytes"), meant: Some(format!("{number}{unit}")) })
}
