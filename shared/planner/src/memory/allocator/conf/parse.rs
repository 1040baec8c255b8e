//! The parser of `PYTORCH_ALLOC_CONF`, with the grammar of PyTorch 2.11.
//!
//! PyTorch splits the text at `,`, `:`, `[` and `]`, drops white space, and takes a key, any part, and a value. It does
//! not look at the part between them, and ignores what follows the digits of a number. So does this parser.

use super::{AllocConf, AllocConfError, N_INTERVALS, sizes};

const MIB: u64 = 1 << 20;

/// Maximum of `pinned_num_register_threads`.
const REGISTER_THREADS_MAX: u64 = 128;

type Result<T> = std::result::Result<T, AllocConfError>;

pub(super) fn parse(text: &str) -> Result<AllocConf> {
    let parts = Parts::new(text);
    parts.check_form()?;
    let mut conf = AllocConf::default();
    parts.large_segments(&mut conf)?;
    parts.device_settings(&mut conf)?;
    parts.cuda_settings(&mut conf)?;
    Ok(conf)
}

fn refused<T>(message: impl Into<String>) -> Result<T> {
    Err(AllocConfError::Refused(message.into()))
}

/// The parts of a text (`ConfigTokenizer`).
struct Parts(Vec<String>);

impl Parts {
    fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut word = String::new();
        for letter in text.chars() {
            if matches!(letter, ',' | ':' | '[' | ']') {
                if !word.is_empty() {
                    parts.push(std::mem::take(&mut word));
                }
                parts.push(letter.to_string());
            } else if !matches!(letter, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}') {
                word.push(letter);
            }
        }
        if !word.is_empty() {
            parts.push(word);
        }
        Self(parts)
    }

    fn get(&self, at: usize) -> Result<&str> {
        let last = || self.0.last().cloned().unwrap_or_default();
        self.0.get(at).map(String::as_str).ok_or_else(|| AllocConfError::Incomplete { after: last() })
    }

    /// Calls `take` with each key and its index. `take` returns the index of the last part of the value.
    fn for_each_key(&self, mut take: impl FnMut(&str, usize) -> Result<usize>) -> Result<()> {
        let mut at = 0;
        while at < self.0.len() {
            at = take(self.get(at)?, at)?;
            if at + 1 < self.0.len() {
                at += 1;
            }
            at += 1;
        }
        Ok(())
    }

    /// The index of the last part of a value (`skipKey`).
    fn skip(&self, key: usize) -> Result<usize> {
        let value = key + 2;
        if self.get(value)? != "[" {
            return Ok(value);
        }
        let mut at = value + 1;
        while self.get(at)? != "]" {
            at += 1;
        }
        Ok(at)
    }

    /// The check that PyTorch makes first, when it looks for the backend.
    fn check_form(&self) -> Result<()> {
        self.for_each_key(|key, at| {
            if key == "backend" && self.get(at + 2)? == "cudaMallocAsync" {
                return Err(AllocConfError::OtherBackend);
            }
            self.skip(at)
        })
    }

    /// `large_segment_size_mb`, which PyTorch looks for before any other setting.
    fn large_segments(&self, conf: &mut AllocConf) -> Result<()> {
        for at in (0..self.0.len()).filter(|&at| self.0[at] == "large_segment_size_mb") {
            let mib = self.integer(at + 2)?;
            let min = sizes::MIN_LARGE_ALLOC / MIB;
            if mib <= min {
                return refused(format!("CachingAllocator option large_segment_size_mb must be > {min} MB"));
            }
            conf.large_segment_bytes = bytes(mib);
        }
        conf.max_non_split_rounding_bytes = conf.large_segment_bytes;
        Ok(())
    }

    /// The settings of every accelerator (`AcceleratorAllocatorConfig::parseArgs`).
    fn device_settings(&self, conf: &mut AllocConf) -> Result<()> {
        self.for_each_key(|key, at| {
            let value = at + 2;
            match key {
                "max_split_size_mb" => conf.max_split_bytes = self.at_least_a_segment(key, value, conf)?,
                "max_non_split_rounding_mb" => {
                    conf.max_non_split_rounding_bytes = self.at_least_a_segment(key, value, conf)?;
                }
                "garbage_collection_threshold" => {
                    let threshold = self.number(value)?;
                    if !(threshold > 0.0 && threshold < 1.0) {
                        return refused("garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
                    }
                    conf.garbage_collection_threshold = threshold;
                }
                "roundup_power2_divisions" => return self.roundup(value, &mut conf.roundup_divisions),
                "expandable_segments" => conf.expandable_segments = self.switch(value)?,
                "pinned_use_background_threads" => {
                    self.switch(value)?;
                }
                "large_segment_size_mb" => {}
                _ if CUDA_KEYS.contains(&key) => return self.skip(at),
                _ => return refused(format!("Unrecognized key '{key}' in Accelerator allocator config.")),
            }
            Ok(value)
        })
    }

    /// The settings of CUDA alone (`CUDAAllocatorConfig::parseArgs`).
    fn cuda_settings(&self, conf: &mut AllocConf) -> Result<()> {
        self.for_each_key(|key, at| {
            let value = at + 2;
            match key {
                "backend" => match self.get(value)? {
                    "native" => {}
                    _ => return refused("Unknown allocator backend, options are native and cudaMallocAsync"),
                },
                "release_lock_on_cudamalloc"
                | "release_lock_on_hipmalloc"
                | "pinned_use_cuda_host_register"
                | "pinned_use_hip_host_register"
                | "graph_capture_record_stream_reuse" => {
                    self.switch(value)?;
                }
                "pinned_num_register_threads" => self.register_threads(value)?,
                "pinned_reserve_segment_size_mb" => {
                    if self.integer(value)? == 0 {
                        return refused("Pinned reserve segment size has to be greater than 0");
                    }
                }
                "per_process_memory_fraction" => {
                    let fraction = self.number(value)?;
                    if !(0.0..=1.0).contains(&fraction) {
                        return refused("per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
                    }
                    conf.per_process_memory_fraction = fraction;
                }
                _ => return self.skip(at),
            }
            Ok(value)
        })
    }

    /// A size in MiB of at least a large segment, in bytes.
    fn at_least_a_segment(&self, key: &str, at: usize, conf: &AllocConf) -> Result<u64> {
        let (mib, min) = (self.integer(at)?, conf.large_segment_bytes / MIB);
        if mib < min {
            return refused(format!("CachingAllocator option {key} too small, must be >= {min}"));
        }
        Ok(bytes(mib))
    }

    fn register_threads(&self, at: usize) -> Result<()> {
        let n = self.integer(at)?;
        if !n.is_power_of_two() {
            return refused(format!("Number of register threads has to be power of 2, got {n}"));
        }
        if n > REGISTER_THREADS_MAX {
            return refused(format!(
                "Number of register threads should be less than or equal to {REGISTER_THREADS_MAX}, got {n}"
            ));
        }
        Ok(())
    }

    /// `roundup_power2_divisions`: one number, or a list of intervals such as `[256:1,512:2,>:4]`.
    fn roundup(&self, value: usize, divisions: &mut [u64; N_INTERVALS]) -> Result<usize> {
        if self.get(value)? != "[" {
            let n = self.integer(value)?;
            if !n.is_power_of_two() {
                return refused("For roundups, the divisions has to be power of 2 ");
            }
            divisions.fill(n);
            return Ok(value);
        }
        let (mut at, mut last, mut is_first) = (value + 1, 0, true);
        while self.get(at)? != "]" {
            let n = self.integer(at + 2)?;
            if n != 0 && !n.is_power_of_two() {
                return refused("For roundups, the divisions has to be power of 2 or 0 to disable roundup ");
            }
            if self.get(at)? == ">" {
                divisions[last + 1..].fill(n);
            } else {
                let mib = self.integer(at)?;
                if !mib.is_power_of_two() {
                    return refused("For roundups, the intervals have to be power of 2 ");
                }
                last = (mib.ilog2() as usize).min(N_INTERVALS - 1);
                if is_first {
                    divisions[..last].fill(n);
                    is_first = false;
                }
                divisions[last] = n;
            }
            at += if self.get(at + 3)? == "]" { 3 } else { 4 };
        }
        Ok(at)
    }

    fn switch(&self, at: usize) -> Result<bool> {
        match self.get(at)? {
            "True" => Ok(true),
            "False" => Ok(false),
            other => refused(format!("Expected 'True' or 'False' at index {at} in ConfigTokenizer but got '{other}'")),
        }
    }

    /// An unsigned integer as `std::stoull` reads it: digits after an optional sign; a negative number wraps.
    fn integer(&self, at: usize) -> Result<u64> {
        let text = self.get(at)?;
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(unsigned.len());
        let n: u64 = unsigned[..end].parse().map_err(|_| not_a_number(text))?;
        Ok(if text.starts_with('-') { n.wrapping_neg() } else { n })
    }

    /// A number as `std::stod` reads it, except hexadecimal ones: the longest part at the start that is a number.
    fn number(&self, at: usize) -> Result<f64> {
        let text = self.get(at)?;
        if text.trim_start_matches(['+', '-']).to_ascii_lowercase().starts_with("0x") {
            return Err(AllocConfError::Hexadecimal { value: text.to_owned() });
        }
        let ends = (1..=text.len()).rev().filter(|&end| text.is_char_boundary(end));
        let number = ends.filter_map(|end| text[..end].parse::<f64>().ok()).next().ok_or_else(|| not_a_number(text))?;
        // Out of the range of a double, which is an error of `std::stod`.
        let names_infinity = text.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
        if number.is_subnormal() || number.is_infinite() && !names_infinity || number == 0.0 && has_digit(text) {
            return Err(not_a_number(text));
        }
        Ok(number)
    }
}

/// Keys that the parser of every accelerator leaves to the one of CUDA.
const CUDA_KEYS: [&str; 9] = [
    "backend",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "graph_capture_record_stream_reuse",
    "pinned_reserve_segment_size_mb",
    "pinned_num_register_threads",
    "per_process_memory_fraction",
];

fn bytes(mib: u64) -> u64 {
    mib.min(u64::MAX / MIB) * MIB
}

fn not_a_number(text: &str) -> AllocConfError {
    AllocConfError::NotANumber { value: text.to_owned() }
}

/// Whether a number that is parsed as 0 has another digit before its exponent.
fn has_digit(text: &str) -> bool {
    text.chars().take_while(|letter| !matches!(letter, 'e' | 'E')).any(|letter| ('1'..='9').contains(&letter))
}
