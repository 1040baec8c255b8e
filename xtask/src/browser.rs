//! Requirements of the page's tests: Chromium, its driver, and a Vulkan driver that needs no GPU. They are installed by
//! the package manager on Debian if permitted; otherwise the error lists them.

use crate::{
    failure::{Failure, Result},
    shell::{Shell, note, step},
};
use std::{
    env,
    path::{Path, PathBuf},
};

/// Debian's packages. libvulkan1 is the loader, mesa-vulkan-drivers has the software driver.
const DEBIAN_PACKAGES: &[&str] = &["chromium-headless-shell", "chromium-driver", "mesa-vulkan-drivers", "libvulkan1"];
/// The packages for the shaders' tests.
const VULKAN_PACKAGES: &[&str] = &["mesa-vulkan-drivers", "libvulkan1"];
const VULKAN_HINT: &str =
    "install the Vulkan loader and a driver, Mesa's software driver (lavapipe) where there is no GPU:
      Debian, Ubuntu  apt install libvulkan1 mesa-vulkan-drivers
      Fedora          dnf install vulkan-loader mesa-vulkan-drivers
      Arch            pacman -S vulkan-icd-loader vulkan-swrast";
const INSTALL_HINT: &str = "install Chromium, its chromedriver and Mesa's software Vulkan driver (lavapipe):
      Debian    apt install chromium-headless-shell chromium-driver mesa-vulkan-drivers
      Ubuntu    its chromium is a snap; install Google Chrome and the chromedriver of the same version
      Fedora    dnf install chromium chromedriver mesa-vulkan-drivers
      Arch      pacman -S chromium vulkan-swrast
      macOS     brew install --cask chromium chromedriver
    or name them with CHROMIUM and CHROMEDRIVER, or leave these tests out: `cargo xtask test --no-browser`";

/// Names of the browser, the preferred first. The headless shell is Chromium without its window and menus, which
/// `--headless=new` starts unseen.
const CHROMIUMS: &[&str] =
    &["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const VULKAN_LOADER_FOLDERS: &[&str] =
    &["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
const VULKAN_DRIVER_FOLDERS: &[&str] =
    &["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];

/// A browser and its WebDriver, of the same version.
#[derive(Debug)]
pub struct Browser {
    pub chromium: PathBuf,
    pub chromedriver: PathBuf,
}

/// Finds the browser, or installs it if that needs no confirmation.
pub fn ensure(shell: &Shell) -> Result<Browser> {
    if find(shell).is_err() {
        install(shell, "Chromium, its driver and a software Vulkan driver", DEBIAN_PACKAGES, INSTALL_HINT)?;
    }
    let browser = find(shell)?;
    let majors = (major(shell, &browser.chromium), major(shell, &browser.chromedriver));
    match majors {
        (Some(browser_major), Some(driver_major)) if browser_major == driver_major => Ok(browser),
        _ => Err(Failure::new(format!(
            "{} and {} are not of the same version ({majors:?})",
            browser.chromium.display(),
            browser.chromedriver.display()
        ))
        .hint(INSTALL_HINT)),
    }
}

/// Ensures a Vulkan driver for the shaders' tests on Linux. On other systems the tests report what is missing.
pub fn ensure_vulkan(shell: &Shell) -> Result<()> {
    if cfg!(not(target_os = "linux")) || has_vulkan() {
        return Ok(());
    }
    install(shell, "a software Vulkan driver", VULKAN_PACKAGES, VULKAN_HINT)?;
    if has_vulkan() { Ok(()) } else { Err(Failure::new("a Vulkan driver is missing").hint(VULKAN_HINT)) }
}

fn find(shell: &Shell) -> Result<Browser> {
    let missing = |what: &str| Failure::new(format!("{what} is missing")).hint(INSTALL_HINT);
    let named = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_file());
    let chromium = named("CHROMIUM").or_else(|| CHROMIUMS.iter().find_map(|name| shell.which(name)));
    let chromedriver = named("CHROMEDRIVER").or_else(|| shell.which("chromedriver"));
    if cfg!(target_os = "linux") && !has_vulkan() {
        return Err(missing("a Vulkan driver"));
    }
    Ok(Browser {
        chromium: chromium.ok_or_else(|| missing("Chromium"))?,
        chromedriver: chromedriver.ok_or_else(|| missing("chromedriver"))?,
    })
}

fn has_vulkan() -> bool {
    let chosen = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].iter().any(|variable| env::var_os(variable).is_some());
    let has_driver = |folder: &&str| Path::new(folder).read_dir().is_ok_and(|mut files| files.next().is_some());
    let loader = VULKAN_LOADER_FOLDERS.iter().any(|folder| Path::new(folder).join("libvulkan.so.1").exists());
    loader && (chosen || VULKAN_DRIVER_FOLDERS.iter().any(has_driver))
}

/// Returns the major version of a program: 156 for "Chromium 156.0.8078.79 built on …" and "ChromeDriver 156.0.8078.79
/// (…)".
fn major(shell: &Shell, program: &Path) -> Option<u32> {
    major_of(&shell.cmd(program).args(["--version"]).read()?)
}

fn major_of(printed: &str) -> Option<u32> {
    printed.split_whitespace().filter_map(|word| word.split_once('.')).find_map(|(major, _)| major.parse().ok())
}

fn install(shell: &Shell, what: &str, packages: &[&str], hint: &'static str) -> Result<()> {
    let Some(sudo) = may_install(shell) else {
        return Err(Failure::new(format!("the tests need {what}, and this user may not install it")).hint(hint));
    };
    let apt = |args: &[&str]| {
        let (program, first): (&str, &[&str]) = if sudo { ("sudo", &["-n", "apt-get"]) } else { ("apt-get", &[]) };
        shell.cmd(program).args(first).args(args).env("DEBIAN_FRONTEND", "noninteractive").run(hint)
    };
    step(&format!("install {what}"), "the tests need it", || {
        apt(&["update", "-qq"])?;
        apt(&[&["install", "-y", "-qq", "--no-install-recommends"], packages].concat())
    })
}

/// Returns whether apt-get needs sudo; `None` if it cannot be used.
fn may_install(shell: &Shell) -> Option<bool> {
    shell.which("apt-get")?;
    if shell.cmd("id").args(["-u"]).read()?.trim() == "0" {
        return Some(false);
    }
    note("not root: asking for sudo without a password");
    shell.cmd("sudo").args(["-n", "true"]).read().map(|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_what_they_print() {
        assert_eq!(major_of("Chromium 156.0.8078.79 built on Debian GNU/Linux 12 (bookworm)"), Some(156));
        assert_eq!(major_of("ChromeDriver 156.0.8078.79 (a21ce95-refs/branch-heads/8078@{#1704})"), Some(156));
        assert_eq!(major_of("command not found"), None);
    }
}
