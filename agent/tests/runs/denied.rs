//! A history that the system denies to this user.

use std::os::unix::fs::PermissionsExt;

use super::*;

const COMMANDS: [&[&str]; 4] = [&[], &["show", "3f2a"], &["export", "3f2a"], &["backup", "copy"]];

#[test]
fn denied_history_is_named_with_cause_and_remedy() {
    let rig = Rig::new();
    rig.exits(&[], 0);
    let (folder, file) = (rig.folder.path().to_owned(), rig.path("history.sqlite"));
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its own");
    for (path, mode, usual_mode) in [(&folder, 0o555, 0o755), (&folder, 0o000, 0o755), (&file, 0o000, 0o600)] {
        set_mode(path, mode);
        // The administrator has access to everything.
        if fs::write(folder.join("probe"), "").is_err() || fs::File::open(&file).is_err() {
            for args in COMMANDS {
                let mut command = rig.command(args);
                command.arg("--data-dir").arg(&folder).current_dir("/");
                let output = command.output().expect("headroom runs");
                let said = text(&output.stderr);
                assert_eq!(output.status.code(), Some(3), "{mode:o}: {said}");
                let expected = format!("headroom: cannot open the history {}: Permission denied", file.display());
                assert!(said.starts_with(&expected), "{mode:o}: {said}");
                assert!(said.contains("\nhint: also to read, SQLite writes a log to the folder"), "{mode:o}: {said}");
            }
        }
        set_mode(path, usual_mode);
    }
}

#[test]
fn history_that_is_no_file_is_named() {
    let rig = Rig::new();
    let file = rig.path("history.sqlite");
    fs::remove_file(&file).expect("it is removed");
    fs::create_dir(&file).expect("a folder");
    for args in COMMANDS {
        let said = rig.refused(args, 3);
        assert!(said.starts_with(&format!("headroom: cannot open the history {}: ", file.display())), "{said}");
    }
}
