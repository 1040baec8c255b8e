//! PTX, to the extent that an emulated driver reads it: its target, its kernels and their parameters.

/// A PTX module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptx {
    /// The PTX version, such as 84 for 8.4.
    pub version: u32,
    /// The target architecture, such as 80 for sm_80.
    pub target: u32,
    /// Its kernels.
    pub entries: Vec<Entry>,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// The size of each parameter in bytes.
    pub parameter_bytes: Vec<u32>,
    /// Largest number of threads per block, if stated.
    pub threads_max: Option<u32>,
}

impl Ptx {
    /// Parses a module.
    ///
    /// # Errors
    /// What is missing, in the style of a compiler.
    pub fn read(text: &str) -> Result<Self, String> {
        let directive = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
        let version = directive(".version ").and_then(|version| {
            let (major, minor) = version.split_once('.')?;
            Some(10 * major.parse::<u32>().ok()? + minor.parse::<u32>().ok()?)
        });
        let target = directive(".target sm_")
            .and_then(|target| target.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
        let entries = text.split(".entry ").skip(1).map(entry).collect::<Result<Vec<_>, _>>()?;
        if entries.is_empty() {
            return Err("it has no .entry".to_owned());
        }
        Ok(Self { version: version.ok_or("it has no .version")?, target: target.ok_or("it has no .target")?, entries })
    }
}

/// Parses `name(.param .u64 name_param_0, …) .maxntid 256, 1, 1 {`.
fn entry(text: &str) -> Result<Entry, String> {
    let head = text.split('{').next().unwrap_or_default();
    let (name, rest) = head.split_once('(').unwrap_or((head, ")"));
    let name = name.trim().to_owned();
    let (parameters, after) = rest.split_once(')').ok_or_else(|| format!("{name}: its parameters do not end"))?;
    let parameters = parameters.split(',').map(str::trim).filter(|parameter| !parameter.is_empty());
    let bytes = |parameter: &str| {
        parameter_bytes(parameter).ok_or_else(|| format!("{name}: nobody knows how long `{parameter}` is"))
    };
    let parameter_bytes = parameters.map(bytes).collect::<Result<_, _>>()?;
    let threads_max = after.split_once(".maxntid").map(|(_, counts)| {
        let counts = counts.lines().next().unwrap_or_default().split(',');
        counts.filter_map(|count| count.trim().parse::<u32>().ok()).product()
    });
    Ok(Entry { name, parameter_bytes, threads_max })
}

/// Returns the size of a parameter such as `.param .u64 name` or `.param .align 8 .b8 name[16]`.
fn parameter_bytes(parameter: &str) -> Option<u32> {
    let mut words = parameter.split_whitespace();
    let kind = words.find(|word| {
        let bits = word.strip_prefix(['.']).map(|word| word.trim_start_matches(char::is_alphabetic));
        bits.is_some_and(|bits| bits.parse::<u32>().is_ok())
    })?;
    let bits: u32 = kind.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
    let n = match words.next()?.split_once('[') {
        Some((_, n)) => n.trim_end_matches(']').parse().ok()?,
        None => 1,
    };
    Some(bits / 8 * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "// Generated\n.version 8.4\n.target sm_80\n.address_size 64\n.visible .entry a(\n\t.param .u64 \
                        a_param_0,\n\t.param .f32 a_param_1,\n\t.param .align 8 .b8 a_param_2[24]\n)\n.maxntid 256, 1, \
                        1\n.minnctapersm 2\n{\n\tret;\n}\n.visible .entry b()\n{\n\tret;\n}\n";

    #[test]
    fn kernels_and_their_parameters_are_read() {
        let ptx = Ptx::read(FILE).expect("it is PTX");
        assert_eq!((ptx.version, ptx.target), (84, 80));
        let a = Entry { name: "a".to_owned(), parameter_bytes: vec![8, 4, 24], threads_max: Some(256) };
        let b = Entry { name: "b".to_owned(), parameter_bytes: vec![], threads_max: None };
        assert_eq!(ptx.entries, [a, b]);
    }

    #[test]
    fn missing_message_parts_are_reported() {
        for (text, error) in [
            ("", "it has no .entry"),
            (".version 8.4\n.entry a(", "a: its parameters do not end"),
            (".version 8.4\n.entry a() {}", "it has no .target"),
            (".entry a(.param .align 8 a) {}", "a: nobody knows how long `.param .align 8 a` is"),
        ] {
            assert_eq!(Ptx::read(text), Err(error.to_owned()), "{text}");
        }
    }
}
