//! Inputs that were not read never count as nanoGPT's defaults. The largest batch is one that certainly fits.

use crate::page::{Page, tell, tell_unopened};
use std::{fs, path::PathBuf};

const VERDICT: &str = "document.querySelector('#verdict')?.textContent";

const NOTICE: &str = "document.querySelector('#notice p')?.textContent";

async fn says(page: &Page, headline: &str) {
    page.until_says(VERDICT, headline).await;
}

/// Opens a file by the button that names the missing config.
async fn open_named(page: &Page, name: &str, text: impl AsRef<[u8]>) {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&file, text).expect("a writable folder");
    page.until("the button is there", "document.querySelector('#open-named')").await;
    let input = page.find("#open-named").await;
    input.send_keys(&file.to_string_lossy()).await.expect("the file is chosen");
}

#[test]
fn settings_from_elsewhere_have_no_plan() {
    tell("settings_from_elsewhere_have_no_plan", async |page| {
        for (text, headline) in [
            ("from base import *\nbatch_size = 8\n", "No plan: base.py was not read"),
            ("batch_size = 8\nexec(open(x).read())\n", "No plan: `exec(open(x).read())` may change any setting"),
            ("batch_size = 8\nglobals().update(cfg)\n", "No plan: `globals().update(cfg)` may change any setting"),
            ("[1,2,3]", "No plan: no settings found"),
        ] {
            page.open("").await;
            page.paste("#config", text).await;
            says(page, headline).await;
            page.until("there is no plan", "document.querySelector('.verdict').dataset.outcome === 'none'").await;
            assert_eq!(page.text("#verdict").await, headline);
            // The link and the embedded calculator give the same answer.
            let link: String = page.value("location.hash").await;
            for address in [format!("{}{link}", page.address), format!("{}#1&config={}", page.address, encoded(text))] {
                page.goto("about:blank").await;
                page.goto(&address).await;
                page.until("there is no plan", "document.querySelector('.verdict')?.dataset.outcome === 'none'").await;
                assert!(page.text("#verdict").await.starts_with("No plan"), "{address}");
            }
        }
        page.open("").await;
        page.paste("#config", "from base import *\nbatch_size = 8\n").await;
        page.until("the file is missing", "document.querySelector('[data-testid=open-named]')").await;
        open_named(page, "base.py", "n_layer = 6\nbatch_size = 64\n").await;
        page.until("it is read", "document.querySelector('#verdict[data-fits]')").await;
        assert_eq!(page.value::<String>("document.querySelector('#n_layer').value").await, "6");
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "8");
    });
}

#[test]
fn run_that_stops_has_no_plan() {
    tell("run_that_stops_has_no_plan", async |page| {
        const OUTCOME: &str = "document.querySelector('.verdict')?.dataset.outcome === 'none'";
        for (text, headline) in [
            ("python train.py --foo=1", "nanoGPT stops: ValueError: Unknown config key: foo"),
            ("python train.py --n_layer=12.0", "nanoGPT stops: n_layer must be of type int, but this is of type float"),
            ("n_layer = 12.0", "n_layer is the float 12.0, but nanoGPT needs an int"),
            ("batch_size = 4\nn_layer = = 6", "n_layer cannot be read"),
            ("batch_size = -3", "batch_size is -3; it must be from 1 to 1099511627776"),
            ("python train.py --batch_size 64", "batch_size cannot be read"),
            ("python train.py --vocab_size=65", "nanoGPT stops: ValueError: Unknown config key: vocab_size"),
            ("python main.py", "main.py is not nanoGPT's train.py; Headroom plans runs of nanoGPT"),
            ("python sample.py --out_dir=out", "sample.py is not nanoGPT's train.py; Headroom plans runs of nanoGPT"),
            (
                "torchrun --nproc_per_node=8 run_clm.py --model_name_or_path meta-llama/Llama-2-7b-hf",
                "run_clm.py is not nanoGPT's train.py; Headroom plans runs of nanoGPT",
            ),
        ] {
            page.open("").await;
            page.paste("#config", text).await;
            says(page, &format!("No plan: {headline}")).await;
            page.until("there is no plan", OUTCOME).await;
            assert_eq!(page.text("#verdict").await, format!("No plan: {headline}"), "{text}");
            assert!(page.value::<bool>("document.querySelector('#open-named') === null").await, "{text}");
            page.until("the link has the run", "location.hash.length > 1").await;
            let link: String = page.value("location.hash").await;
            for address in [format!("{}{link}", page.address), format!("{}#1&config={}", page.address, encoded(text))] {
                page.goto("about:blank").await;
                page.goto(&address).await;
                page.until("there is no plan", OUTCOME).await;
                assert!(page.text("#verdict").await.starts_with("No plan"), "{address}");
            }
        }
        // A variable of the config that nanoGPT does not know is harmless.
        page.open("").await;
        page.paste("#config", "mine = 3\nbatch_size = 4").await;
        says(page, "Fits: ").await;
    });
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn a_config_that_was_not_read_has_no_plan_until_it_is_opened() {
    tell("a_config_that_was_not_read_has_no_plan", async |page| {
        page.choose_gpu("GeForce RTX 4070").await;
        page.paste("#config", "python train.py config/my_config.py --n_layer=6").await;
        says(page, "No plan: config/my_config.py was not read").await;
        assert_eq!(page.value::<String>("document.querySelector('.verdict').dataset.outcome").await, "none");
        // A link to the run has no plan either, and the command keeps the file.
        page.click("#copy-command").await;
        assert_eq!(page.clipboard().await, "python train.py config/my_config.py --n_layer=6");
        page.click("#copy-link").await;
        let link = page.clipboard().await.replacen('#', "?anew#", 1);
        page.goto(&link).await;
        says(page, "my_config.py was not read").await;

        open_named(page, "my_config.py", "batch_size = 4\ncompile = False\n").await;
        says(page, "Fits: ").await;
        assert_eq!(page.value::<String>("document.querySelector('#n_layer').value").await, "6");
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "4");
        page.until("the button is gone", "!document.querySelector('#open-named')").await;
    });
}

#[test]
fn file_of_another_name_or_kind_is_named() {
    tell("file_of_another_name_or_kind_is_named", async |page| {
        page.paste("#config", "python nanoGPT/train.py nanoGPT/config/mine.py").await;
        says(page, "No plan: nanoGPT/config/mine.py was not read").await;
        open_named(page, "photo.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").await;
        page.until_says(NOTICE, "Cannot read photo.png: it is not a text file.").await;
        says(page, "No plan: nanoGPT/config/mine.py was not read").await;
        open_named(page, "other.py", "batch_size = 4\n").await;
        page.until_says(NOTICE, "other.py is used as nanoGPT/config/mine.py.").await;
        page.click("#copy-command").await;
        assert_eq!(page.clipboard().await, "python nanoGPT/train.py nanoGPT/config/mine.py");
    });
}

#[test]
fn a_dropped_file_of_that_name_is_the_config() {
    tell("a_dropped_file_of_that_name_is_the_config", async |page| {
        page.paste("#config", "python train.py config/my_config.py --n_layer=6").await;
        says(page, "No plan: config/my_config.py was not read").await;
        let drop = "{
            const data = new DataTransfer();
            data.items.add(new File(['batch_size = 7'], 'my_config.py'));
            for (const kind of ['dragover', 'drop'])
                document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
        }";
        page.promise(drop).await;
        page.until("the file is read", "document.querySelector('#batch_size').value === '7'").await;
        page.click("#copy-command").await;
        assert_eq!(page.clipboard().await, "python train.py config/my_config.py --n_layer=6");
        // A change in the form is an argument, and the file stays unchanged.
        page.fill("#batch_size", "5").await;
        page.click("#copy-command").await;
        assert_eq!(page.clipboard().await, "python train.py config/my_config.py --batch_size=5 --n_layer=6");
    });
}

#[test]
fn nanogpt_s_own_configs_are_known_by_name() {
    tell("nanogpt_s_own_configs_are_known_by_name", async |page| {
        page.choose_gpu("GeForce RTX 4070").await;
        page.paste("#config", "python train.py config/finetune_shakespeare.py").await;
        says(page, "Does not fit: 24.00").await;
        page.click("#copy-command").await;
        assert_eq!(page.clipboard().await, "python train.py config/finetune_shakespeare.py");
        page.paste("#config", "python train.py config/train_shakespeare_char.py").await;
        says(page, "Fits: ").await;
        assert_eq!(page.value::<String>("document.querySelector('#n_embd').value").await, "384");
    });
}

#[test]
fn a_value_that_cannot_be_read_has_no_plan() {
    tell("a_value_that_cannot_be_read_has_no_plan", async |page| {
        for (text, key) in [
            ("batch_size = 99999999999999999999", "batch_size"),
            ("compile = maybe", "compile"),
            ("python train.py --compile=maybe", "compile"),
        ] {
            page.paste("#config", text).await;
            says(page, &format!("No plan: {key} cannot be read")).await;
            page.until("the link has the run", "location.hash.length > 1").await;
        }
        for fragment in ["1&batch_size=99999999999999999999&gpu=L4", "1&compile=maybe&gpu=L4"] {
            let link = format!("{}calculator.html?anew{}#{fragment}", page.address, fragment.len());
            page.goto(&link).await;
            says(page, "cannot be read").await;
        }
        page.paste("#config", "124M, batch 2").await;
        says(page, "Fits: ").await;
    });
}

#[test]
fn the_largest_batch_is_the_same_from_any_start() {
    tell("the_largest_batch_is_the_same_from_any_start", async |page| {
        page.choose_gpu("GeForce RTX 4070").await;
        page.paste("#config", "batch_size = 8").await;
        let lead = "document.querySelector('.fixes:not(.stale) .fixes__lead')?.textContent";
        for (batch, largest) in
            [("8", "is 12"), ("12", "This is the largest batch_size"), ("13", "is 12"), ("64", "is 12")]
        {
            page.fill("#batch_size", batch).await;
            let said = page.until_says(lead, largest).await;
            assert!(
                said.contains(". It may also fit with 13, 15:") && said.contains("14 fails where 15 fits by 13 MiB"),
                "{said}"
            );
        }
        page.fill("#batch_size", "8").await;
        page.until("12 is offered", "document.querySelector('.fixes:not(.stale) [data-testid=apply-larger]')").await;
        page.click("[data-testid=apply-larger]").await;
        page.until("it fits", "document.querySelector('.verdict').dataset.outcome === 'fits'").await;
    });
}

#[test]
fn a_comment_of_ours_goes_with_its_value() {
    tell("a_comment_of_ours_goes_with_its_value", async |page| {
        page.open("1&gpu=RTX%204070&others=2GiB").await;
        page.paste("#config", "batch_size= 64  # mine\ngradient_accumulation_steps = 1\n").await;
        let offered = "document.querySelector('.fixes:not(.stale) [data-fix=micro_batch][data-fits=true]')";
        let config = "document.querySelector('#config').value";
        for _ in 0..2 {
            page.until("fixes are offered", offered).await;
            page.click("[data-fix=micro_batch] button").await;
            page.until("the run fits", "document.querySelector('#verdict[data-fits=true]')").await;
            let text: String = page.value(config).await;
            assert!(text.starts_with("batch_size= 8  # mine  # headroom: fits"), "{text}");
            assert_eq!(text.matches("# headroom:").count(), 2, "{text}");
            // A manual change of the value invalidates Headroom's comments.
            page.fill("#batch_size", "64").await;
            page.until("the comments are gone", &format!("!{config}.includes('# headroom:')")).await;
            let text: String = page.value(config).await;
            assert!(text.starts_with("batch_size= 64  # mine\n"), "{text}");
            page.fill("#gradient_accumulation_steps", "1").await;
        }
    });
}

const PROCESS: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity \
    of 11.69 GiB of which 20.00 MiB is free. Process 1234 has 10.00 GiB memory in use. Including non-PyTorch memory, this \
    process has 1.67 GiB memory in use. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 52.00 MiB is reserved \
    by PyTorch but unallocated.";
const BATCH_64: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
    capacity of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. \
    Of the allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";

const EXPLANATION: &str = "document.querySelector('[data-testid=explanation]')?.textContent";

#[test]
fn diagnose_names_the_process_first() {
    tell_unopened("diagnose_names_the_process_first", async |page| {
        page.open_diagnose().await;
        page.paste("#message", PROCESS).await;
        let said = page.until_says(EXPLANATION, "Process 1234 holds 10.00 GiB").await;
        assert!(said.starts_with("Process 1234") && !said.contains("fragmentation"), "{said}");
    });
}

#[test]
fn diagnose_understands_a_novice_and_judges_no_defaults() {
    tell_unopened("diagnose_understands_a_novice_and_judges_no_defaults", async |page| {
        page.open_diagnose().await;
        page.paste("#message", BATCH_64).await;
        page.paste("#config", "124M, batch 64").await;
        page.until_says(EXPLANATION, "to the last digit").await;
        page.paste("#config", "my run, no idea").await;
        page.until("its field is marked", "document.querySelector('#config').ariaInvalid === 'true'").await;
        assert!(page.text("#config-fault").await.contains("no settings"));
        assert!(!page.text("[data-testid=explanation]").await.contains("would fit"));

        page.paste("#config", "python train.py config/my_config.py --gradient_accumulation_steps=1").await;
        page.until("it is missing", "document.querySelector('[data-testid=unread]')").await;
        open_named(page, "my_config.py", "batch_size = 64\n").await;
        page.until("it is read", "document.querySelector('[data-testid=agreement]')").await;
    });
}
