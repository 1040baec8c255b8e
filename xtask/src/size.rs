//! `cargo xtask size`: the brotli size of a first visit compared with its limit; files loaded on demand are separate.

use crate::{
    compress::{self, Effort},
    failure::{Failure, IoContext, Result},
    files,
    shell::Shell,
    texts,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Upper bound of a page's first load in bytes, brotli-compressed, all files together.
const FIRST_LOAD_BYTES_MAX: usize = 300_000;
/// The rig page and its limit in bytes. It is larger because its own agent serves it, usually on the local network.
const RIG: (&str, usize) = ("rig.html", 500_000);
/// The page of the other trainers and its limit in bytes. It has the engine with its models, and no part that a first plan
/// does not need.
const TRAINERS: (&str, usize) = ("trainers.html", 320_000);
/// The page that explains messages and its limit in bytes. It has the engine with its models too.
const DIAGNOSE: (&str, usize) = ("diagnose.html", 430_000);
/// The page that compares two runs and its limit in bytes. It has the forms and the planner of every trainer.
const COMPARE: (&str, usize) = ("compare.html", 440_000);
/// Upper bound in bytes of a module that is loaded on demand, with its JavaScript, brotli-compressed.
const LAZY_MODULE_BYTES_MAX: usize = 250_000;

/// The script that an embedding page loads first. Its limit is uncompressed, because other hosts may not compress it.
const EMBEDDING_SCRIPT: &str = "headroom-calculator.js";
const EMBEDDING_SCRIPT_BYTES_MAX: usize = 3_000;

/// The page that lists GPUs and its limit in bytes. It plans runs of every trainer, so it has the engine with its models.
const GPUS: (&str, usize) = ("gpus.html", 370_000);

struct PageFile {
    /// Its path in `dist`, with forward slashes.
    name: String,
    /// Its size as sent.
    sent_bytes: usize,
    /// Its content if it is text, otherwise empty.
    text: String,
}

/// Prints the sizes, and fails if one exceeds its limit.
pub fn run(shell: &Shell) -> Result<()> {
    let files = read(&shell.root.join("dist"))?;
    let mut of_pages: Vec<&str> = Vec::new();
    let mut loads: Vec<(&str, usize)> = Vec::new();
    for page in files.iter().filter(|file| file.name.ends_with(".html")) {
        let first = in_one_language(&files, first_load(&files, &page.name));
        println!("first load of {}, as brotli:", page.name);
        for file in files.iter().filter(|file| first.contains(&file.name.as_str())) {
            println!("  {:>9}  {}", file.sent_bytes, file.name);
        }
        let bytes: usize =
            files.iter().filter(|file| first.contains(&file.name.as_str())).map(|file| file.sent_bytes).sum();
        let bytes_max = first_load_bytes_max(&page.name);
        println!("  {bytes:>9}  together, of {bytes_max} bytes at most");
        loads.push((&page.name, bytes));
        of_pages.extend(first);
    }
    let lazy: BTreeMap<&str, usize> = lazy_modules(&files, &of_pages);
    println!("on demand, as brotli, each of {LAZY_MODULE_BYTES_MAX} bytes at most:");
    for (module, bytes) in &lazy {
        println!("  {bytes:>9}  {module}");
    }
    if lazy.is_empty() {
        println!("  nothing");
    }
    judge_script(&files)?;
    judge(&loads, &lazy)
}

fn first_load_bytes_max(page: &str) -> usize {
    [RIG, TRAINERS, DIAGNOSE, COMPARE, GPUS]
        .into_iter()
        .find(|(name, _)| *name == page)
        .map_or(FIRST_LOAD_BYTES_MAX, |(_, bytes_max)| bytes_max)
}

fn judge_script(files: &[PageFile]) -> Result<()> {
    let script = files.iter().find(|file| file.name == EMBEDDING_SCRIPT);
    let Some(bytes) = script.map(|file| file.text.len()).filter(|bytes| *bytes > 0) else {
        return Err(Failure::new(format!("dist has no {EMBEDDING_SCRIPT}")).hint("web/embed.html copies it"));
    };
    println!("{EMBEDDING_SCRIPT}, plain: {bytes} of {EMBEDDING_SCRIPT_BYTES_MAX} bytes at most");
    if bytes > EMBEDDING_SCRIPT_BYTES_MAX {
        return Err(Failure::new(format!("{EMBEDDING_SCRIPT} takes {bytes} bytes, over {EMBEDDING_SCRIPT_BYTES_MAX}"))
            .hint("it is loaded by every page that embeds the calculator; without Node it is not made small at all"));
    }
    Ok(())
}

/// Checks the limits; `loads` has the pages with their first loads.
fn judge(loads: &[(&str, usize)], lazy: &BTreeMap<&str, usize>) -> Result<()> {
    if let Some((page, bytes)) = loads.iter().find(|(page, bytes)| *bytes > first_load_bytes_max(page)) {
        let bytes_max = first_load_bytes_max(page);
        return Err(Failure::new(format!("the first load of {page} takes {bytes} bytes, over {bytes_max}"))
            .hint("see what grew: `twiggy top` on the wasm, or move what is not needed at once to the lazy module"));
    }
    match lazy.iter().find(|(_, bytes)| **bytes > LAZY_MODULE_BYTES_MAX) {
        Some((module, bytes)) => {
            Err(Failure::new(format!("{module} takes {bytes} bytes, over {LAZY_MODULE_BYTES_MAX}")))
        }
        None => Ok(()),
    }
}

fn read(dist: &Path) -> Result<Vec<PageFile>> {
    let is_copy = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "br" || ending == "gz");
    // The documentation has no program: its pages are text only.
    let is_of_docs = |file: &PathBuf| file.starts_with(dist.join("docs"));
    let files = files::files_below(dist)?.into_iter().filter(|file| !is_copy(file) && !is_of_docs(file));
    let files: Vec<_> = files.collect();
    if files.is_empty() {
        return Err(Failure::new("there is no page in dist").hint("run `cargo xtask page`"));
    }
    files.iter().map(|file| page_file(dist, file)).collect()
}

fn page_file(dist: &Path, file: &Path) -> Result<PageFile> {
    let plain = fs::read(file).doing(|| format!("read {}", file.display()))?;
    let name = file.strip_prefix(dist).unwrap_or(file).display().to_string().replace('\\', "/");
    let sent_bytes = match fs::metadata(compress::beside(file, "br")) {
        Ok(packed) => usize::try_from(packed.len()).doing(|| format!("count the bytes of {name}"))?,
        Err(_) if compress::is_compressible(file) => compress::brotli(&plain, Effort::Most)?.len(),
        Err(_) => plain.len(),
    };
    Ok(PageFile { name, sent_bytes, text: String::from_utf8(plain).unwrap_or_default() })
}

/// A page fetches its texts in one language only; keeps the largest.
fn in_one_language<'a>(files: &'a [PageFile], mut first: Vec<&'a str>) -> Vec<&'a str> {
    let texts = files.iter().filter(|file| file.name.starts_with(texts::PREFIX) && first.contains(&&*file.name));
    if let Some(largest) = texts.max_by_key(|file| file.sent_bytes) {
        first.retain(|name| !name.starts_with(texts::PREFIX) || *name == largest.name);
    }
    first
}

/// Returns a page, the files that it names, and the files that those import or refer to immediately.
fn first_load<'a>(files: &'a [PageFile], page: &str) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    let mut open: Vec<&PageFile> = files.iter().filter(|file| file.name == page).collect();
    while let Some(file) = open.pop() {
        if !found.contains(&file.name.as_str()) {
            found.push(&file.name);
            open.extend(files.iter().filter(|other| fetches_at_once(file, &other.name)));
        }
    }
    found
}

/// Returns whether `file` fetches `name` immediately: pages any name in them, except those of [`is_read_later`], scripts
/// static imports, style sheets `url()`.
fn fetches_at_once(file: &PageFile, name: &str) -> bool {
    match file.name.rsplit('.').next() {
        Some("html") => file.text.split('<').any(|tag| !is_read_later(tag) && tag.contains(name)),
        Some("js") => statements(&file.text).any(|statement| is_static_import(statement) && names(statement, name)),
        Some("css") => file.text.split("url(").skip(1).any(|rest| rest.split(')').next().unwrap_or("").contains(name)),
        _ => false,
    }
}

/// Returns whether a tag's file is not fetched by a visit: sites that show a link fetch its image, and a phone fetches its
/// icon when a user adds the page to the home screen.
fn is_read_later(tag: &str) -> bool {
    tag.starts_with("meta ") || tag.starts_with("link rel=\"apple-touch-icon\"")
}

fn statements(script: &str) -> impl Iterator<Item = &str> {
    script.split([';', '\n']).map(str::trim)
}

/// Returns whether a statement is a static import; `} from` ends one with several lines.
fn is_static_import(statement: &str) -> bool {
    let import =
        statement.starts_with("import") && !statement.trim_start_matches("import").trim_start().starts_with('(');
    import || statement.starts_with("export") || statement.starts_with("} from")
}

/// Returns whether a statement contains the name as a quoted path.
fn names(statement: &str, name: &str) -> bool {
    statement.split(['"', '\'']).any(|quoted| quoted.trim_start_matches("./") == name)
}

/// Returns the sizes of the other files by module: `demo.js` and `demo_bg.wasm` are one.
fn lazy_modules<'a>(files: &'a [PageFile], first: &[&str]) -> BTreeMap<&'a str, usize> {
    let mut modules = BTreeMap::new();
    // A model's weights are loaded at the user's request and are not a module.
    let is_program = |file: &&PageFile| file.name.ends_with(".js") || file.name.ends_with(".wasm");
    for file in files.iter().filter(is_program).filter(|file| !first.contains(&&*file.name)) {
        let stem = file.name.rsplit_once('.').map_or(file.name.as_str(), |(stem, _)| stem);
        *modules.entry(stem.trim_end_matches("_bg")).or_insert(0) += file.sent_bytes;
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, sent_bytes: usize, text: &str) -> PageFile {
        PageFile { name: name.into(), sent_bytes, text: text.into() }
    }

    fn page() -> Vec<PageFile> {
        vec![
            file(
                "index.html",
                1,
                r#"<meta property="og:image" content="https://example.org/previews/a.png" />
                <link rel="icon" href="icon.svg" /><link rel="apple-touch-icon" href="icon-180.png" />
                <script src="boot.js" data-js="./app-1.js" data-wasm="./app-1_bg.wasm">"#,
            ),
            file("boot.js", 2, "await import(names.js)"),
            file("app-1.js", 4, "import { f } from './snippets/app-1/inline0.js';\nx"),
            file("app-1_bg.wasm", 8, ""),
            file("snippets/app-1/inline0.js", 16, "import(new URL('gpu.js', document.baseURI))"),
            file("gpu.js", 32, ""),
            file("gpu_bg.wasm", 64, ""),
            file("model.safetensors", 1 << 20, ""),
            file("icon.svg", 128, ""),
            file("icon-180.png", 256, ""),
            file("previews/a.png", 1 << 15, ""),
        ]
    }

    #[test]
    fn static_imports_count_as_first_load_and_dynamic_ones_do_not() {
        let files = page();
        let first = first_load(&files, "index.html");
        let bytes: usize = files.iter().filter(|file| first.contains(&file.name.as_str())).map(|f| f.sent_bytes).sum();
        assert_eq!(bytes, 1 + 2 + 4 + 8 + 16 + 128, "{first:?}");
        assert_eq!(lazy_modules(&files, &first), BTreeMap::from([("gpu", 32 + 64)]));
    }

    #[test]
    fn imports_are_static_in_every_spelling_but_the_call() {
        for (statement, is_static) in [
            ("import { f } from './a.js'", true),
            ("import{f}from'./a.js'", true),
            ("export * from './a.js'", true),
            ("} from './a.js'", true),
            ("import('./a.js')", false),
            ("import ('./a.js')", false),
            ("load('./a.js')", false),
        ] {
            assert_eq!(is_static_import(statement) && names(statement, "a.js"), is_static, "{statement}");
        }
    }

    #[test]
    fn a_style_sheet_fetches_its_pictures() {
        let style = file("style.css", 1, "body { background: url(\"./paper.svg\") }");
        assert!(fetches_at_once(&style, "paper.svg"));
        assert!(!fetches_at_once(&style, "style.svg"));
    }

    #[test]
    fn a_script_over_its_bar_or_gone_fails() {
        let script = |bytes: usize| [file(EMBEDDING_SCRIPT, 1, &"x".repeat(bytes))];
        judge_script(&script(EMBEDDING_SCRIPT_BYTES_MAX)).expect("at the bar");
        judge_script(&script(EMBEDDING_SCRIPT_BYTES_MAX + 1)).expect_err("over the bar");
        judge_script(&script(0)).expect_err("empty");
        judge_script(&page()).expect_err("gone");
    }

    #[test]
    fn a_page_over_its_bar_fails() {
        let none = BTreeMap::new();
        judge(&[("index.html", FIRST_LOAD_BYTES_MAX), RIG], &none).expect("at the bar");
        judge(&[("index.html", FIRST_LOAD_BYTES_MAX + 1)], &none).expect_err("over the bar");
        judge(&[("index.html", 1), (RIG.0, RIG.1 + 1)], &none).expect_err("over the bar");
        judge(&[], &BTreeMap::from([("gpu", LAZY_MODULE_BYTES_MAX + 1)])).expect_err("over the bar");
    }
}
