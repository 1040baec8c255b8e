//! Output of `runs export` to devices, pipes and links.

use std::os::unix::fs::{FileTypeExt, symlink};

use super::*;

#[test]
fn an_export_is_written_into_a_device_and_a_pipe() {
    let rig = Rig::new();
    let expected = rig.exits(&["export", "3f2a"], 0).stdout;
    symlink("/dev/null", rig.path("null")).expect("a link");
    for more in [&[][..], &["--force"]] {
        let args = [&["export", "3f2a", "--out", "null"], more].concat();
        rig.exits(&args, 0);
        assert_eq!(fs::read_link(rig.path("null")).expect("a link"), Path::new("/dev/null"));

        let made = Command::new("mkfifo").arg(rig.path("pipe")).status().expect("mkfifo is there");
        assert!(made.success());
        let pipe = rig.path("pipe");
        let reader = thread::spawn(move || fs::read(pipe));
        rig.exits(&[&["export", "3f2a", "--out", "pipe"], more].concat(), 0);
        assert_eq!(reader.join().expect("it ends").expect("it is read"), expected);
        assert!(fs::metadata(rig.path("pipe")).expect("it is there").file_type().is_fifo());
        fs::remove_file(rig.path("pipe")).expect("it is removed");
    }
}

#[test]
fn an_export_replaces_the_file_that_a_link_names() {
    let rig = Rig::new();
    let expected = rig.exits(&["export", "3f2a"], 0).stdout;
    fs::create_dir(rig.path("kept")).expect("a folder");
    symlink("kept/losses.csv", rig.path("link.csv")).expect("a link");
    // A link to a missing file replaces nothing.
    rig.exits(&["export", "3f2a", "--out", "link.csv"], 0);
    assert_eq!(fs::read(rig.path("kept/losses.csv")).expect("the file"), expected);
    fs::write(rig.path("kept/losses.csv"), "mine").expect("a file");
    let refused = rig.refused(&["export", "3f2a", "--out", "link.csv"], 1);
    assert!(refused.ends_with("hint: --force replaces it\n"), "{refused}");
    rig.exits(&["export", "3f2a", "--out", "link.csv", "--force"], 0);
    assert_eq!(fs::read(rig.path("kept/losses.csv")).expect("the file"), expected);
    assert_eq!(fs::read_link(rig.path("link.csv")).expect("a link"), Path::new("kept/losses.csv"));
    // A folder is not replaced.
    let refused = rig.refused(&["export", "3f2a", "--out", "kept"], 3);
    assert!(!refused.contains("--force"), "{refused}");
}
