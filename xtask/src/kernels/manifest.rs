//! `kernels/ptx/manifest.json`: the sources' hashes, and each entry's resource usage.
//!
//! It has a line per figure, so that a diff is readable.

use super::{CompiledKernel, Folders, HEADER, compilers, usage::Usage};
use crate::{
    failure::{Failure, IoContext, Result},
    files,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    fs,
    path::Path,
};

/// The sources and their hashes.
#[derive(Debug)]
pub struct Sources {
    ops: Vec<String>,
    hashes: BTreeMap<String, String>,
}

impl Sources {
    /// Reads every CUDA C++ file of a directory.
    pub fn read(folder: &Path) -> Result<Self> {
        let read = |path: &Path| fs::read(path).doing(|| format!("read {}", path.display()));
        let header = read(&folder.join(HEADER))?;
        let mut hashes = BTreeMap::new();
        for file in files::files_below(folder)? {
            if file.extension().is_some_and(|ending| ending == "cu") {
                hashes.insert(stem(&file), hash_of_sources(&header, &read(&file)?));
            }
        }
        if hashes.is_empty() {
            return Err(Failure::new(format!("{} has no kernels", folder.display())));
        }
        Ok(Self { ops: hashes.keys().cloned().collect(), hashes })
    }

    /// Returns the files' names without extensions, sorted.
    pub fn ops(&self) -> &[String] {
        &self.ops
    }
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Hashes everything that determines the PTX. The header's length separates header and source.
fn hash_of_sources(header: &[u8], source: &[u8]) -> String {
    let [compiler, _] = compilers::names();
    let settings = format!("{compiler}\n{}\n{}\n", compilers::OPTIONS.join(" "), header.len());
    hash(&[settings.as_bytes(), header, source])
}

fn hash(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The contents of the manifest.
#[derive(Debug)]
pub struct Manifest<'a> {
    sources: &'a Sources,
    built: &'a [CompiledKernel],
}

impl<'a> Manifest<'a> {
    /// Creates the manifest of the kernels built from these sources.
    pub fn of(sources: &'a Sources, built: &'a [CompiledKernel]) -> Self {
        Self { sources, built }
    }
}

impl fmt::Display for Manifest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [compiler, assembler] = compilers::names();
        writeln!(f, "{{\n  \"compiler\": \"{compiler}\",\n  \"options\": \"{}\",", compilers::OPTIONS.join(" "))?;
        writeln!(f, "  \"assembler\": \"{assembler}\",\n  \"kernels\": {{")?;
        for (idx, kernel) in self.built.iter().enumerate() {
            let source = self.sources.hashes.get(&kernel.op).map_or("", String::as_str);
            writeln!(f, "    \"{}\": {{\n      \"sources_sha256\": \"{source}\",", kernel.op)?;
            writeln!(f, "      \"ptx_sha256\": \"{}\",\n      \"entries\": {{", hash(&[kernel.ptx.as_bytes()]))?;
            for (idx, (entry, usages)) in kernel.entries.iter().enumerate() {
                writeln!(f, "        \"{entry}\": {{")?;
                for (idx, (architecture, usage)) in usages.iter().enumerate() {
                    let Usage { registers, shared_bytes, stack_bytes, spill_bytes } = usage;
                    writeln!(
                        f,
                        "          \"{architecture}\": {{ \"registers\": {registers}, \"shared_bytes\": {shared_bytes}, \
                         \"stack_bytes\": {stack_bytes}, \"spill_bytes\": {spill_bytes} }}{}",
                        comma(idx, usages.len())
                    )?;
                }
                writeln!(f, "        }}{}", comma(idx, kernel.entries.len()))?;
            }
            writeln!(f, "      }}\n    }}{}", comma(idx, self.built.len()))?;
        }
        writeln!(f, "  }}\n}}")
    }
}

fn comma(idx: usize, len: usize) -> &'static str {
    if idx + 1 < len { "," } else { "" }
}

/// Returns the committed files that do not match these sources, by hashes alone.
pub fn stale(folders: &Folders, sources: &Sources) -> Result<Vec<String>> {
    let text = fs::read_to_string(folders.manifest()).doing(|| "read kernels/ptx/manifest.json".into())?;
    let manifest: Value = serde_json::from_str(&text).doing(|| "read kernels/ptx/manifest.json".into())?;
    let committed = files::files_below(&folders.ptx)?;
    let committed = committed.iter().filter(|file| file.extension().is_some_and(|ending| ending == "ptx"));
    let mut ptx = BTreeMap::new();
    for file in committed {
        ptx.insert(stem(file), fs::read(file).doing(|| format!("read {}", file.display()))?);
    }
    Ok(stale_of(&manifest, &sources.hashes, &ptx))
}

fn stale_of(manifest: &Value, hashes: &BTreeMap<String, String>, ptx: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let kernels = &manifest["kernels"];
    let known = kernels.as_object().into_iter().flatten().map(|(op, _)| op);
    let ops: BTreeSet<&String> = known.chain(hashes.keys()).chain(ptx.keys()).collect();
    let mut findings = Vec::new();
    for op in ops {
        let kernel = &kernels[op];
        match (hashes.get(op), ptx.get(op)) {
            (None, _) => findings.push(format!("kernels/cuda has no {op}.cu, and kernels/ptx knows it")),
            (_, None) => findings.push(format!("kernels/ptx has no {op}.ptx")),
            (Some(source), Some(ptx)) => {
                if kernel["sources_sha256"] != **source {
                    findings.push(format!("{op}.ptx is not of this {op}.cu, {HEADER}, compiler and options"));
                } else if kernel["ptx_sha256"] != hash(&[ptx]) {
                    findings.push(format!("{op}.ptx is not what was made of its source"));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(source: &[u8]) -> Sources {
        let hashes = BTreeMap::from([("a".to_owned(), hash_of_sources(b"header", source))]);
        Sources { ops: vec!["a".into()], hashes }
    }

    fn built() -> Vec<CompiledKernel> {
        let usages = ["sm_80", "sm_90"].map(|architecture| (architecture, Usage { registers: 22, ..Usage::default() }));
        let entries = ["a_forward", "a_backward"].map(|entry| (entry.to_owned(), usages.into()));
        vec![CompiledKernel {
            op: "a".into(),
            ptx: "ptx\n".into(),
            entries: entries.into(),
            newest: BTreeMap::new(),
            warnings: vec![],
        }]
    }

    fn manifest(sources: &Sources) -> Value {
        serde_json::from_str(&Manifest::of(sources, &built()).to_string()).expect("it is JSON")
    }

    #[test]
    fn it_is_json_with_every_figure() {
        let manifest = manifest(&sources(b"kernel"));
        let entries = &manifest["kernels"]["a"]["entries"];
        assert_eq!(entries["a_backward"]["sm_90"]["registers"], 22);
        assert_eq!(entries.as_object().map(serde_json::Map::len), Some(2));
        assert_eq!(manifest["options"], compilers::OPTIONS.join(" "));
    }

    #[test]
    fn stale_edited_missing_or_extra_kernel_is_found() {
        let sources = sources(b"kernel");
        let manifest = manifest(&sources);
        let ptx = |op: &str, text: &str| BTreeMap::from([(op.to_owned(), text.as_bytes().to_vec())]);
        let committed = ptx("a", "ptx\n");
        assert_eq!(stale_of(&manifest, &sources.hashes, &committed), [""; 0]);

        let changed = self::sources(b"another kernel");
        assert_eq!(stale_of(&manifest, &changed.hashes, &committed).len(), 1, "the source has changed");
        assert_eq!(stale_of(&manifest, &sources.hashes, &ptx("a", "edited\n")).len(), 1);
        assert_eq!(stale_of(&manifest, &sources.hashes, &BTreeMap::new()).len(), 1);
        assert_eq!(stale_of(&manifest, &BTreeMap::new(), &committed).len(), 1);
        let both = [committed, ptx("b", "ptx\n")].into_iter().flatten().collect();
        assert_eq!(stale_of(&manifest, &sources.hashes, &both).len(), 1, "a PTX file without a source");
    }

    #[test]
    fn header_and_source_are_distinguished() {
        assert_ne!(hash_of_sources(b"ab", b"c"), hash_of_sources(b"a", b"bc"));
        // The hash of no bytes, from FIPS 180-4.
        assert_eq!(hash(&[]), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
