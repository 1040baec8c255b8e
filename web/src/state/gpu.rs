//! The GPU as the user writes it: a name of the table, or an amount of memory.

use headroom_planner::{
    hardware::{CloudGpu, Device, Segment, by_popularity, find, search, search_cloud},
    session::Options,
};

use headroom_text::Text;
use leptos::prelude::RwSignal;

use super::{
    entry::{self, Faults},
    format,
};
use crate::text::{self, Key};

/// Sets the GPU options from the text of the GPU field.
pub fn set(options: &mut Options, typed: &str) {
    let typed = typed.trim();
    let size = size(typed).filter(|_| find(typed).is_err());
    if size.is_none() { typed } else { "" }.clone_into(&mut options.gpu);
    options.vram_bytes = size;
}

/// Parses an amount of memory: a number with a unit, or a number with decimals, which is in GiB. The decimal sign is a
/// point or a comma. A whole number without a unit is `None`, because it may be a part of a name.
fn size(typed: &str) -> Option<u64> {
    let has_unit = typed.ends_with(['b', 'B']);
    let is_size = typed.starts_with(|c: char| c.is_ascii_digit()) && (has_unit || typed.contains(['.', ',']));
    entry::size(typed, "GiB").filter(|bytes| is_size && *bytes > 0)
}

/// Returns whether the text is a known GPU or an amount of memory.
pub fn is_known(typed: &str) -> bool {
    let mut options = Options { gpu: String::new(), ..Options::default() };
    set(&mut options, typed);
    options.vram_bytes.is_some() || find(&options.gpu).is_ok()
}

/// A text in the GPU field that differs from the selected GPU. While there is one, the page shows no verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuDraft {
    /// What the text means.
    pub meaning: Meaning,
    /// The selected GPU, which Escape restores.
    pub current: String,
}

/// The state of a page with a GPU field.
pub trait OnGpu: Copy + Send + Sync + 'static {
    /// The GPU and the environment of the run, tracked.
    fn options(self) -> Options;

    /// Changes the options while the user types.
    fn edit_options(self, change: impl FnOnce(&mut Options));

    /// Changes the options by a completed action.
    fn commit_options(self, change: impl FnOnce(&mut Options));

    /// The text in the GPU field while it is not a valid choice.
    fn draft(self) -> RwSignal<Option<GpuDraft>>;

    /// The fields of the form whose text is invalid.
    fn faults(self) -> Faults;

    /// The memory of the GPU in bytes, tracked; `None` without a plan.
    fn gpu_bytes(self) -> Option<u64>;

    /// The error of the GPU's name or memory, tracked.
    fn gpu_fault(self) -> Option<Text>;
}

/// What a text in the GPU field means.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// Exactly this GPU or amount of memory, which Enter selects.
    One(String),
    /// Several GPUs, or the field is empty.
    Several,
    /// No GPU, and not an amount of memory.
    Unknown,
}

/// The text of the GPU field.
pub fn field(options: &Options) -> String {
    match (options.gpu.as_str(), options.vram_bytes) {
        ("", Some(bytes)) => format!("{}GiB", format::gib_field(bytes)),
        (name, _) => name.to_owned(),
    }
}

/// A GPU in the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Its label in the list.
    pub label: &'static str,
    /// Its name in the table.
    pub name: &'static str,
    /// The number of these GPUs in one cloud machine.
    pub n_gpus: u64,
    /// The nominal memory, in GB.
    pub nominal_gb: u64,
    /// The memory that CUDA reports, in words.
    pub total: String,
    /// The section of the list; `None` for a cloud machine.
    pub segment: Option<Segment>,
}

/// Selects the GPU chosen earlier on this device, if it is still known.
pub fn prefer(options: &mut Options, kept: Option<&str>) {
    if let Some(name) = kept.filter(|name| is_known(name)) {
        set(options, name);
    }
}

/// The heading of a section of the list.
pub const fn heading(segment: Option<Segment>) -> Key {
    match segment {
        Some(Segment::Desktop) => text::GPUS_DESKTOP,
        Some(Segment::Laptop) => text::GPUS_LAPTOP,
        Some(Segment::Workstation) => text::GPUS_WORKSTATION,
        Some(Segment::DataCentre) => text::GPUS_DATA_CENTRE,
        None => text::GPUS_CLOUD,
    }
}

/// The GPUs that the list offers for a typed text; all of them for an empty text.
pub fn matching(typed: &str) -> Vec<Choice> {
    search(typed).into_iter().map(|(segment, device)| choice(segment, device)).collect()
}

/// The cloud machines whose names contain every typed word; all of them for an empty text.
pub fn matching_cloud(typed: &str) -> Vec<Choice> {
    let choice = |rented: &'static CloudGpu| {
        let device = find(rented.device).ok()?;
        Some(Choice {
            label: rented.label,
            n_gpus: rented.n_gpus,
            segment: None,
            ..choice(Segment::DataCentre, device)
        })
    };
    search_cloud(typed).filter_map(choice).collect()
}

/// The position in the whole list of the GPU that the field names.
pub fn position(field: &str) -> Option<usize> {
    let name = &find(field).ok()?.name;
    by_popularity().position(|(_, device)| device.name == *name)
}

/// The rows of the open list.
#[derive(Clone, Default, PartialEq)]
pub struct List {
    /// Matching GPUs, then cloud instances.
    pub choices: Vec<Choice>,
    /// The typed amount of memory, which is the last row: a GPU without a name.
    pub size: Option<String>,
    /// The row that the text means; `None` if several rows match it. Enter accepts it.
    pub meant: Option<usize>,
}

impl List {
    /// The list for a typed text.
    pub fn of(typed: &str) -> Self {
        let typed = typed.trim();
        let mut choices = matching(typed);
        choices.extend(matching_cloud(typed));
        // Without a GPU of that name or size, a whole number is in GiB too.
        let is_number = choices.is_empty() && typed.bytes().all(|c| c.is_ascii_digit());
        let typed = if is_number { format!("{typed} GiB") } else { typed.to_owned() };
        let size = size(&typed).filter(|_| find(&typed).is_err()).map(|_| typed.clone());
        // CUDA reports sizes with a binary unit. A size in GB is that of several GPUs.
        let is_exact = size.is_some() && (choices.is_empty() || typed.to_ascii_lowercase().ends_with("ib"));
        let is_one = size.is_none() && choices.iter().all(|choice| choice.name == choices[0].name);
        let meant = match is_exact {
            true => Some(choices.len()),
            false => (!choices.is_empty() && (find(&typed).is_ok() || is_one)).then_some(0),
        };
        Self { choices, size, meant }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.choices.len() + usize::from(self.size.is_some())
    }

    /// The text of the field after a row is chosen.
    pub fn value(&self, at: usize) -> Option<String> {
        self.choices.get(at).map(|choice| choice.name.to_owned()).or_else(|| self.size.clone())
    }

    /// What the typed text means.
    pub fn meaning(&self) -> Meaning {
        match self.meant.and_then(|at| self.value(at)) {
            Some(one) => Meaning::One(one),
            None if self.len() > 0 => Meaning::Several,
            None => Meaning::Unknown,
        }
    }
}

fn choice(segment: Segment, device: &'static Device) -> Choice {
    Choice {
        label: &device.name,
        name: &device.name,
        n_gpus: 1,
        nominal_gb: device.vram_bytes_nominal >> 30,
        total: format::size(device.total_bytes),
        segment: Some(segment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_planner::hardware::{CLOUD_GPUS, devices};

    fn names(typed: &str) -> Vec<&'static str> {
        matching(typed).into_iter().map(|choice| choice.name).collect()
    }

    #[test]
    fn a_size_is_a_gpu_without_a_name() {
        let mut options = Options::default();
        set(&mut options, "16 GiB");
        assert_eq!((options.gpu.as_str(), options.vram_bytes), ("", Some(16 << 30)));
        assert_eq!(field(&options), "16GiB");
        set(&mut options, "RTX 3060");
        assert_eq!((options.gpu.as_str(), options.vram_bytes), ("RTX 3060", None));
        assert_eq!(field(&options), "RTX 3060");
        for (typed, known) in [("3060", true), ("12GB", true), ("30", false), ("", false), ("RTX 3060 T", false)] {
            assert_eq!(is_known(typed), known, "{typed}");
        }
    }

    #[test]
    fn sizes_have_a_decimal_point_or_comma() {
        for (typed, bytes) in [
            ("12.5 GiB", Some(25 << 29)),
            ("12,5 GiB", Some(25 << 29)),
            ("12,5gib", Some(25 << 29)),
            ("12,5", Some(25 << 29)),
            ("12.5", Some(25 << 29)),
            ("12,5 GB", Some(12_500_000_000)),
            ("12", None),
            ("12,500 GiB", None),
            ("0 GB", None),
        ] {
            let mut options = Options::default();
            set(&mut options, typed);
            assert_eq!(options.vram_bytes, bytes, "{typed}");
        }
        for typed in ["12,5 GiB", "12.5 GB", "12,5", "12.5", "13 GiB", "13"] {
            assert!(matches!(List::of(typed).meaning(), Meaning::One(_)), "{typed}");
        }
    }

    #[test]
    fn ambiguous_text_means_no_gpu() {
        for typed in ["rtx 30", "12 GB", "12GB", "24", "309", "kaggle", "rtx", "141 GB", "11.69", "a100", "30"] {
            let list = List::of(typed);
            assert_eq!(list.meaning(), Meaning::Several, "{typed}");
            assert!(list.len() > 1, "{typed}");
        }
        for (typed, name) in [
            ("RTX 4070", "GeForce RTX 4070"),
            ("rtx3060", "GeForce RTX 3060 12GB"),
            ("4070ti", "GeForce RTX 4070 Ti"),
            ("g5", "A10G"),
            ("8 GiB", "8 GiB"),
            ("11.69 GiB", "11.69 GiB"),
        ] {
            assert_eq!(List::of(typed).meaning(), Meaning::One(name.to_owned()), "{typed}");
        }
        assert_eq!(List::of("foobar").meaning(), Meaning::Unknown);
        // No row of the whole list is meant by an empty text.
        assert_eq!(List::of("").meaning(), Meaning::Several);
    }

    #[test]
    fn every_choice_is_found_by_name_at_its_position() {
        let all = matching("");
        assert_eq!(all.len(), devices().len());
        for (index, choice) in all.iter().enumerate() {
            assert_eq!(position(choice.name), Some(index), "{}", choice.name);
            assert_eq!(names(choice.name).first(), Some(&choice.name));
        }
        assert_eq!(all[position("RTX 4070").expect("listed")].name, "GeForce RTX 4070");
        assert_eq!(position("foobar"), None);
    }

    #[test]
    fn clouds_are_found_by_their_names() {
        let found = |typed: &str| -> Vec<(&str, &str, u64)> {
            matching_cloud(typed).into_iter().map(|choice| (choice.label, choice.name, choice.n_gpus)).collect()
        };
        assert_eq!(found("kaggle"), [("Kaggle T4 x2", "Tesla T4", 2), ("Kaggle P100", "Tesla P100-PCIE-16GB", 1)]);
        assert_eq!(found("colab a100"), [("Colab A100", "A100-SXM4-40GB", 1)]);
        assert_eq!(found("g5"), [("AWS g5", "A10G", 1)]);
        assert_eq!((found("24"), found("12 GB"), found("foobar")), (vec![], vec![], vec![]));
        assert_eq!(found("").len(), CLOUD_GPUS.len(), "each names a GPU of the table");
    }

    #[test]
    fn words_match_in_any_order() {
        let found = names("laptop 4070");
        assert!(!found.is_empty());
        assert!(found.iter().all(|name| name.contains("4070") && name.contains("Laptop")));
        assert_eq!(names("no such card"), Vec::<&str>::new());
        // Enter selects the GPU that `find` resolves the words to.
        for typed in ["RTX 4070", "3060", "A100 80GB", "a100-80"] {
            let meant = find(typed).expect("a GPU's colloquial name");
            assert_eq!(names(typed).first(), Some(&&*meant.name), "{typed}");
        }
    }

    #[test]
    fn a_size_finds_every_gpu_of_that_size_and_no_other() {
        let sizes: std::collections::BTreeSet<u64> = devices().iter().map(|d| d.vram_bytes_nominal >> 30).collect();
        for size in sizes {
            let mut of_size: Vec<&str> =
                devices().iter().filter(|d| d.vram_bytes_nominal >> 30 == size).map(|d| &*d.name).collect();
            of_size.sort_unstable();
            for typed in [format!("{size} GB"), format!("{size}GB"), format!("{size}gib"), format!("{size} g")] {
                let mut found = names(&typed);
                found.sort_unstable();
                assert_eq!(found, of_size, "{typed}");
            }
            let found = names(&size.to_string());
            assert!(of_size.iter().all(|name| found.contains(name)), "{size}: {found:?}");
        }
        assert_eq!(names("12 GB").len(), 13);
        assert_eq!(names("11.69 GiB"), names("11,69gib"));
        assert!(names("11.69").contains(&"GeForce RTX 4070"));
    }

    #[test]
    fn names_without_blanks_find_all_of_theirs() {
        for (typed, in_name) in
            [("rtx3060", "RTX 3060"), ("4070ti", "4070 Ti"), ("RTX-A2000", "RTX A2000"), ("nvidia 4090", "4090")]
        {
            let found = names(typed);
            let expected = devices().iter().filter(|device| device.name.contains(in_name)).count();
            assert_eq!(found.len(), expected, "{typed}: {found:?}");
            assert!(found.iter().all(|name| name.contains(in_name)), "{typed}: {found:?}");
        }
        assert_eq!(names("colab"), ["Tesla T4"]);
    }
}
