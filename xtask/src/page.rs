//! Builds the pages into `dist`, with compressed copies of each file.

mod html;
mod meta;
mod programs;

use crate::{
    bundle,
    compress::{self, Effort},
    docs,
    failure::{Failure, IoContext, Result},
    files,
    packages::Packages,
    png,
    shell::{Shell, note, step},
    texts, tools,
};
use html::{Kind, Names, Tag};
use programs::Program;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The build mode of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// The released form.
    Release,
    /// A quick build for development, larger and slower.
    Fast,
}

impl Build {
    const fn effort(self) -> Effort {
        match self {
            Self::Release => Effort::Most,
            Self::Fast => Effort::Little,
        }
    }

    /// Returns cargo's profile.
    const fn profile(self) -> &'static str {
        match self {
            Self::Release => "page",
            Self::Fast => "page-fast",
        }
    }
}

/// Installs the tools, and builds the page and the documentation if their inputs changed.
pub fn ensure(shell: &Shell, build: Build) -> Result<()> {
    ensure_page(shell, build)?;
    docs::ensure(shell, build.effort())
}

fn ensure_page(shell: &Shell, build: Build) -> Result<()> {
    let tools = tools::ensure_page_tools(shell)?;
    let inputs = inputs(shell)?;
    let address = meta::address()?;
    let digest = files::digest(&inputs, &format!("{build:?} {tools:?} {address}"))?;
    let stamp = shell.target.join("xtask").join("page.stamp");
    if files::is_stamped(&stamp, &digest) && shell.root.join("dist/index.html.br").is_file() {
        note("the page in dist is up to date: none of its sources changed");
        return Ok(());
    }
    step("fetch crates", "the page is built with no network after this", || {
        shell.cmd("cargo").args(["fetch", "--quiet"]).run("check the network and run the command again")
    })?;
    step("compile the pages", "to WebAssembly; a minute or two from nothing", || programs::compile(shell, build))?;
    step("assemble the pages", "JavaScript, one style sheet and the texts of each language", || {
        assemble(shell, build, tools.optimizers, &address)
    })?;
    step("compress the page", "it is sent as it lies, so no viewer costs the server anything", || {
        compress::folder(&shell.root.join("dist"), build.effort())
    })?;
    files::write_stamp(&stamp, &digest)
}

/// The pages; each has its own program, named in its HTML.
pub const PAGES: [&str; 10] = [
    "calculator.html",
    "compare.html",
    "demo.html",
    "diagnose.html",
    "embed.html",
    "gpus.html",
    "replay.html",
    "rig.html",
    "trainers.html",
    "index.html",
];

/// Writes the pages into `dist`. `address` is their public address, or empty.
fn assemble(shell: &Shell, build: Build, has_optimizers: bool, address: &str) -> Result<()> {
    let optimizes = build == Build::Release && has_optimizers;
    let sources = PAGES.map(|page| Source::read(shell, page)).into_iter().collect::<Result<Vec<_>>>()?;
    let all: Vec<Program> = sources.iter().flat_map(Source::programs).collect();
    programs::bind(shell, build, &all, optimizes)?;
    let dist = shell.root.join("dist");
    files::remake(&dist)?;
    for source in &sources {
        source.write(shell, &dist, address)?;
        texts::add_to(&dist, source.page)?;
    }
    texts::add_of_worker(&dist)?;
    if optimizes { bundle::make_small(shell, &dist) } else { Ok(()) }
}

/// The HTML of a page in `web`.
struct Source {
    page: &'static str,
    html: String,
    tags: Vec<Tag>,
}

impl Source {
    fn read(shell: &Shell, page: &'static str) -> Result<Self> {
        let path = shell.root.join("web").join(page);
        let html = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
        let tags = html::tags(&html)?;
        Ok(Self { page, html, tags })
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.tags.iter().filter(move |tag| tag.kind == kind).map(|tag| tag.href.as_str())
    }

    fn programs(&self) -> Vec<Program> {
        let of = |kind, is_worker| self.of_kind(kind).map(move |name| Program { name: name.to_owned(), is_worker });
        of(Kind::Program, false).chain(of(Kind::Worker, true)).collect()
    }

    /// Copies the page's preview image into `dist`, and returns the tags that name it.
    fn write_preview(&self, web: &Path, dist: &Path, address: &str) -> Result<String> {
        let Some(Tag { href, title, .. }) = self.tags.iter().find(|tag| tag.kind == Kind::Preview) else {
            return Err(Failure::new(format!("web/{} names no preview", self.page))
                .hint("a page has one tag with data-build=\"preview\""));
        };
        let bytes = fs::read(web.join(href)).doing(|| format!("read web/{href}"))?;
        let size = png::size(&bytes).ok_or_else(|| Failure::new(format!("web/{href} is not a PNG file")))?;
        let to = dist.join(href);
        to.parent().map_or(Ok(()), fs::create_dir_all).doing(|| format!("create the folder of {href}"))?;
        fs::write(to, bytes).doing(|| format!("write {href}"))?;
        meta::tags(&self.html, meta::Image { name: href, alt: title, size }, address)
    }

    /// Writes the page and its files into `dist`.
    fn write(&self, shell: &Shell, dist: &Path, address: &str) -> Result<()> {
        let web = shell.root.join("web");
        for file in self.of_kind(Kind::File).map(|name| web.join(name)) {
            let to = dist.join(file.file_name().unwrap_or_default());
            fs::copy(&file, to).doing(|| format!("copy {}", file.display()))?;
        }
        let style_sheet = bundle::join(&web, self.of_kind(Kind::Style), dist)?;
        let meta = self.write_preview(&web, dist, address)?;
        let mut names = None;
        for program in self.programs() {
            let files = programs::files_of(shell, &program);
            if program.is_worker {
                files.copy_plain(dist)?;
            } else {
                names = Some(files.copy_with_hash(dist)?);
            }
        }
        let (script, wasm) = names.ok_or_else(|| {
            Failure::new(format!("web/{} names no program", self.page))
                .hint("a page has one tag with data-build=\"program\"")
        })?;
        let names = Names { style_sheet: &style_sheet, script: &script, wasm: &wasm, meta: &meta };
        fs::write(dist.join(self.page), html::replaced(&self.html, &self.tags, names))
            .doing(|| format!("write {}", self.page))
    }
}

/// Returns all inputs of the page.
fn inputs(shell: &Shell) -> Result<Vec<PathBuf>> {
    let packages = Packages::read(shell)?;
    let mut inputs = Vec::new();
    for folder in packages.folders_behind(packages.of_page(&shell.root)) {
        inputs.extend(files::files_below(folder)?);
    }
    inputs.extend(files::files_below(&shell.root.join("vendor"))?);
    for name in [
        "Cargo.toml",
        "Cargo.lock",
        "rust-toolchain.toml",
        "xtask/src/pins.rs",
        "xtask/src/optimize.rs",
        "xtask/src/optimize/imports.rs",
    ] {
        inputs.push(shell.root.join(name));
    }
    inputs.sort();
    inputs.dedup();
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_languages::english;
    use headroom_planner::survey;
    use headroom_text as text;

    /// Characters of a description that search results and previews show.
    const DESCRIPTION_MAX: usize = 160;
    const TITLES: [(&str, text::Key); 10] = [
        ("index.html", text::TITLE_START),
        ("calculator.html", text::TITLE_BUDGET),
        ("diagnose.html", text::TITLE_DIAGNOSE),
        ("gpus.html", text::TITLE_GPUS),
        ("compare.html", text::TITLE_COMPARE),
        ("demo.html", text::TITLE_DEMO),
        ("rig.html", text::TITLE_RIG),
        ("embed.html", text::TITLE_EMBED),
        ("trainers.html", text::TITLE_TRAINERS),
        ("replay.html", text::TITLE_REPLAY),
    ];

    /// Returns the tags of a page. Each test has a folder of its own for the image.
    fn tags_of(page: &'static str, test: &str) -> String {
        let shell = Shell::new().expect("an environment");
        let source = Source::read(&shell, page).expect("a page");
        let dist = shell.target.join("xtask").join(test);
        files::remake(&dist).expect("a folder");
        source.write_preview(&shell.root.join("web"), &dist, "https://example.org/").expect("an image")
    }

    #[test]
    fn previews_have_the_title_of_the_page_and_a_short_description() {
        for page in PAGES {
            let tags = tags_of(page, "preview-tags");
            let content = |property: &str| {
                let (_, rest) = tags.split_once(&format!("og:{property}\" content=\"")).expect("a tag");
                rest.split('"').next().unwrap_or_default()
            };
            let (_, title) = TITLES.iter().find(|(of, _)| *of == page).expect("a title");
            assert_eq!(content("title"), english().word(*title), "{page}");
            let length = content("description").chars().count();
            assert!((60..=DESCRIPTION_MAX).contains(&length), "{page}: {length} characters");
            assert!(content("image").starts_with("https://example.org/previews/"), "{page}");
            assert_eq!((content("image:width"), content("image:height")), ("1200", "630"), "{page}");
        }
    }

    #[test]
    fn description_has_the_number_of_gpus() {
        assert!(tags_of("gpus.html", "preview-gpus").contains(&format!("Which of {} NVIDIA GPUs", survey::n_gpus())));
    }
}
