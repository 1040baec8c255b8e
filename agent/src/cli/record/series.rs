//! Records a command at several batch sizes or sequence lengths, and combines the recordings.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use headroom_planner::recording::{DecodeError, Decoder, MergeError, Recording, Variable, merge};
use thiserror::Error;

use super::{
    super::{Exit, args::InvalidValue, print},
    Program,
};

/// Why a command is not recorded at several sizes.
#[derive(Debug, Error)]
pub enum SeriesError {
    /// No word of the command takes the size.
    #[error("cannot record several {}s: no word of the command has {{{}}}", variable, variable.key())]
    NoPlaceholder {
        /// Variable of the series.
        variable: Variable,
    },
    /// A placeholder is neither the variable nor a product with it.
    #[error("cannot read {{{placeholder}}} in the command: it is not {{{0}}} or {{{0}*NUMBER}}", variable.key())]
    Placeholder {
        /// Variable of the series.
        variable: Variable,
        /// Text between the braces.
        placeholder: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {verb} {}: {error}", path.display())]
    File {
        /// What failed.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system reports.
        error: io::Error,
    },
    /// The recorder wrote an invalid file.
    #[error("cannot read the recording at {variable} {size}: {error}")]
    Invalid {
        /// Variable of the series.
        variable: Variable,
        /// Size of the recording.
        size: u64,
        /// What is wrong, with its offset.
        error: DecodeError,
    },
    /// The recordings are not combined.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

impl SeriesError {
    /// Suggested remedy.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoPlaceholder { variable } | Self::Placeholder { variable, .. } => {
                let key = variable.key();
                Some(format!("write it where the command takes the number, as in `python train.py --{key}={{{key}}}`"))
            }
            Self::Merge(MergeError::Events { .. }) => Some(
                "the program must do the same work at each size; keep the number of micro-batches equal".to_owned(),
            ),
            Self::Merge(MergeError::NoPolynomial { .. }) => {
                Some("record one size more, or sizes that are multiples of 8".to_owned())
            }
            _ => None,
        }
    }

    /// Exit status of this error.
    pub const fn exit(&self) -> Exit {
        match self {
            Self::NoPlaceholder { .. } | Self::Placeholder { .. } | Self::Merge(MergeError::Sizes) => Exit::Usage,
            Self::File { .. } => Exit::InputOutput,
            Self::Invalid { .. } | Self::Merge(_) => Exit::Failure,
        }
    }
}

/// Sizes at which a command is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// What the sizes are of.
    pub variable: Variable,
    sizes: Vec<u64>,
}

impl Sizes {
    /// Reads sizes, as in `4,8,12`.
    pub fn read(variable: Variable, text: &str) -> Result<Self, String> {
        let sizes: Option<Vec<u64>> = text.split(',').map(|size| size.trim().parse().ok().filter(|n| *n > 0)).collect();
        let mut sizes = sizes.ok_or_else(|| "it is a list of numbers, such as 4,8,12".to_owned())?;
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() < 3 {
            return Err(
                "it has at least three numbers: two determine a linear size, and the third one checks it".to_owned()
            );
        }
        Ok(Self { variable, sizes })
    }
}

/// Checks that an option has the variable of the options before it.
///
/// # Errors
/// They have another variable.
pub fn one_variable(given: Option<Variable>, variable: Variable) -> Result<(), InvalidValue> {
    match given {
        Some(other) if other != variable => Err("a series has one variable".to_owned().into()),
        _ => Ok(()),
    }
}

/// Records a program at each size, and writes the series to `out`. False if a run fails.
pub fn record(
    program: &Program,
    Sizes { variable, sizes }: &Sizes,
    out: &Path,
    record: impl Fn(&Program, &Path) -> Result<ExitStatus, super::Error>,
) -> Result<bool, super::Error> {
    let programs = sizes.iter().map(|size| program.with(*variable, *size)).collect::<Result<Vec<_>, _>>()?;
    let temporary = || std::env::temp_dir();
    let folder = tempfile::Builder::new().prefix("headroom-series-").tempdir();
    let folder = folder.map_err(|error| super::Error::Folder { folder: temporary(), error })?;
    let mut runs = Vec::new();
    for (size, program) in sizes.iter().zip(&programs) {
        let n = runs.len() + 1;
        print::note(&format!("headroom: recording at {variable} {size} ({n} of {})\n", sizes.len()));
        let path = folder.path().join(format!("{size}.headroom"));
        if !record(program, &path)?.success() {
            return Ok(false);
        }
        runs.push((*size, read(*variable, *size, &path)?));
    }
    let series = merge(*variable, runs).map_err(SeriesError::Merge)?;
    let write_error = |error| SeriesError::File { verb: "write", path: out.to_owned(), error };
    fs::write(out, series.encode()).map_err(write_error)?;
    let numbers: Vec<String> = sizes.iter().map(u64::to_string).collect();
    print::note(&format!("headroom: wrote {} with {variable}s {}\n", out.display(), numbers.join(", ")));
    Ok(true)
}

fn read(variable: Variable, size: u64, path: &Path) -> Result<Recording, SeriesError> {
    let bytes = fs::read(path).map_err(|error| SeriesError::File { verb: "read", path: path.to_owned(), error })?;
    let mut decoder = Decoder::default();
    let recording = decoder.push(&bytes).and_then(|()| decoder.finish());
    recording.map_err(|error| SeriesError::Invalid { variable, size, error })
}

impl Program {
    /// The program at a size, which replaces the placeholders in its words.
    fn with(&self, variable: Variable, size: u64) -> Result<Self, SeriesError> {
        let mut n_replaced = 0;
        let words = self.words.iter().map(|word| match word.to_str() {
            Some(text) => replaced(text, variable, size, &mut n_replaced).map(OsString::from),
            None => Ok(word.clone()),
        });
        let words = words.collect::<Result<_, _>>()?;
        if n_replaced == 0 {
            return Err(SeriesError::NoPlaceholder { variable });
        }
        Ok(Self { words, ..self.clone() })
    }
}

/// Replaces `{batch_size}` and `{batch_size*NUMBER}` in a word. Other braces remain.
fn replaced(word: &str, variable: Variable, size: u64, n_replaced: &mut usize) -> Result<String, SeriesError> {
    let opening = format!("{{{}", variable.key());
    let mut text = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once(&opening) {
        let (factor, behind) = after.split_once('}').unwrap_or((after, ""));
        let number = match factor.trim().strip_prefix('*') {
            None if factor.is_empty() => Some(size),
            None => None,
            Some(factor) => factor.trim().parse().ok().and_then(|factor: u64| factor.checked_mul(size)),
        };
        let placeholder = || format!("{}{factor}", variable.key());
        let number = number.ok_or_else(|| SeriesError::Placeholder { variable, placeholder: placeholder() })?;
        text = text + before + &number.to_string();
        rest = behind;
        *n_replaced += 1;
    }
    Ok(text + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str], size: u64) -> Result<Vec<String>, String> {
        let program =
            Program { python: "python".into(), options: Vec::new(), words: words.iter().map(OsString::from).collect() };
        let program = program.with(Variable::BatchSize, size).map_err(|error| error.to_string())?;
        Ok(program.words.into_iter().map(|word| word.into_string().expect("a text")).collect())
    }

    #[test]
    fn placeholders_become_the_size_and_its_multiples() {
        let command =
            ["train.py", "--batch_size={batch_size}", "--total={batch_size*2048}", "{x}", "{batch_size * 2}/4"];
        let expected = ["train.py", "--batch_size=8", "--total=16384", "{x}", "16/4"];
        assert_eq!(words(&command, 8), Ok(expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn command_without_the_size_is_refused() {
        let error = "cannot record several batch sizes: no word of the command has {batch_size}";
        assert_eq!(words(&["train.py", "--batch_size=8"], 8), Err(error.to_owned()));
        for word in ["{batch_size+1}", "{batch_size*x}", "{batch_size*}", "{batch_sizes}"] {
            let error = words(&[word], 8).expect_err("a placeholder that is not valid");
            assert!(error.contains(word) && error.contains("{batch_size*NUMBER}"), "{error}");
        }
    }

    #[test]
    fn sizes_are_at_least_three_numbers() {
        let sizes = Sizes::read(Variable::BatchSize, "12, 4,8,8").map(|sizes| sizes.sizes);
        assert_eq!(sizes, Ok(vec![4, 8, 12]));
        for text in ["", "4", "4,8", "4,8,8", "4,8,0", "4,8,x", "4,8,-1"] {
            assert!(Sizes::read(Variable::BatchSize, text).is_err(), "{text}");
        }
    }
}
