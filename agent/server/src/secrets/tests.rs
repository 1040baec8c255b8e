//! Tests of redaction: what is redacted in a text and in a command, and what stays.

use super::*;

/// Forms of a secret in commands, scripts, configs and logs, and their redacted forms.
pub const FORMS: [(&str, &str); 46] = [
    ("tool --bearer SECRET --lr 1", "tool --bearer [redacted] --lr 1"),
    ("tool --bearer=SECRET", "tool --bearer=[redacted]"),
    ("tool --cred SECRET", "tool --cred [redacted]"),
    ("tool --pw SECRET", "tool --pw [redacted]"),
    ("plink -pw SECRET host", "plink -pw [redacted] host"),
    ("pw=SECRET", "pw=[redacted]"),
    ("dbpw = 'SECRET'", "dbpw = '[redacted]'"),
    ("tool --db-pw=SECRET", "tool --db-pw=[redacted]"),
    ("tool --pat SECRET", "tool --pat [redacted]"),
    ("tool --pat=SECRET", "tool --pat=[redacted]"),
    ("tool --session SECRET", "tool --session [redacted]"),
    ("tool --session-id SECRET", "tool --session-id [redacted]"),
    ("tool --session_token=SECRET", "tool --session_token=[redacted]"),
    ("helm --set auth.token SECRET", "helm --set auth.token [redacted]"),
    ("helm --set auth.token=SECRET", "helm --set auth.token=[redacted]"),
    ("helm --set-string 'auth.token' SECRET", "helm --set-string 'auth.token' [redacted]"),
    ("pip config set global.password SECRET", "pip config set global.password [redacted]"),
    ("setx HF_TOKEN SECRET", "setx HF_TOKEN [redacted]"),
    ("os.environ.setdefault('X_TOKEN','SECRET')", "os.environ.setdefault('X_TOKEN','[redacted]')"),
    ("os.environ.setdefault( \"X_TOKEN\", \"SECRET\" )", "os.environ.setdefault( \"X_TOKEN\", \"[redacted]\" )"),
    ("os.getenv('WANDB_API_KEY', 'SECRET')", "os.getenv('WANDB_API_KEY', '[redacted]')"),
    ("os.putenv(\"PASSWORD\", b\"SECRET\")", "os.putenv(\"PASSWORD\", b\"[redacted]\")"),
    ("setattr(args, 'hf_token', 'SECRET')", "setattr(args, 'hf_token', '[redacted]')"),
    ("login('SECRET')", "login([redacted])"),
    ("huggingface_hub.login(\"SECRET\")", "huggingface_hub.login([redacted])"),
    ("smtp.login('ada', 'SECRET')", "smtp.login([redacted])"),
    ("wandb.login('a', key='SECRET')", "wandb.login([redacted], key='[redacted]')"),
    ("login(token='SECRET')", "login(token='[redacted]')"),
    ("wandb.login(key='SECRET')", "wandb.login(key='[redacted]')"),
    ("wandb.login(anonymous='never', key=\"SECRET\")", "wandb.login(anonymous='never', key=\"[redacted]\")"),
    ("{\"password\": \"SECRET\"}", "{\"password\": \"[redacted]\"}"),
    (r#"{\"password\": \"SECRET\"}"#, r#"{\"password\": \"[redacted]\"}"#),
    (r#"{\"creds\":{\"n\":1},\"api_key\":\"SECRET\"}"#, r#"{\"creds\":[redacted],\"api_key\":\"[redacted]\"}"#),
    (r#""{\\\"password\\\": \\\"SECRET\\\"}""#, r#""{\\\"password\\\": \\\"[redacted]\\\"}""#),
    (r#"{"password": "a\"SECRET"}"#, r#"{"password": "[redacted]"}"#),
    (r#"{\"password\": \"a\\\"SECRET\"}"#, r#"{\"password\": \"[redacted]\"}"#),
    ("password = '''a\nSECRET'''", "password = '''[redacted]'''"),
    ("password = r'SECRET'", "password = r'[redacted]'"),
    ("password: str = 'SECRET'", "password: str = '[redacted]'"),
    ("token: str | None = 'SECRET'", "token: str | None = '[redacted]'"),
    ("password=\"a SECRET", "password=\"[redacted]"),
    ("Authorization: Bearer SECRET", "Authorization: Bearer [redacted]"),
    ("params={'pw': 'SECRET', 'n': 1}", "params={'pw': '[redacted]', 'n': 1}"),
    ("creds: {user: ada, pw: SECRET}", "creds: [redacted]"),
    ("wandb_run_name='password: SECRET'", "wandb_run_name='password: [redacted]'"),
    ("bearer: SECRET", "bearer: [redacted]"),
];

#[test]
fn every_form_is_redacted() {
    for secret in ["x", "hunter2", "hunter23xK9qLm4Z"] {
        for (form, expected) in FORMS {
            let given = form.replace("SECRET", secret);
            check(&given, expected);
            let mut script = ["sh", "-c", &given].map(str::to_owned);
            command(&mut script);
            assert_eq!(script[2], expected, "as a script");
            if !form.contains(['"', '\'', '\\', '{', '=', ':']) {
                let mut words: Vec<String> = given.split(' ').map(str::to_owned).collect();
                command(&mut words);
                assert_eq!(words.join(" "), expected, "as separate words");
            }
        }
    }
}

#[test]
fn json_is_redacted_by_its_keys_and_texts() {
    let mut value = serde_json::json!({
        "password": 12, "api_key": "x", "dropout": 0.1, "wandb_run_name": "pw=x", "key": "name", "list": ["token: x"],
        "wandb_log": false, "auth": null, "out_dir": "out-2026-11-23", "session": "hunter23xK9qLm4Z",
    });
    let expected = serde_json::json!({
        "password": REDACTED, "api_key": REDACTED, "dropout": 0.1, "wandb_run_name": "pw=[redacted]", "key": "name",
        "list": ["token: [redacted]"], "wandb_log": false, "auth": null, "out_dir": "out-2026-11-23",
        "session": REDACTED,
    });
    for _ in 0..2 {
        in_json(&mut value);
        assert_eq!(value, expected);
    }
}

#[track_caller]
fn check(given: &str, expected: &str) {
    assert_eq!(text(given), expected);
    assert_eq!(text(expected), expected, "once is enough");
}

#[test]
fn secrets_are_redacted_at_any_position() {
    check("WANDB_API_KEY=local-abc python train.py", "WANDB_API_KEY=[redacted] python train.py");
    check("export HF_TOKEN='a b'; python x", "export HF_TOKEN='[redacted]'; python x");
    check("wandb_api_key = \"abc\"  # mine", "wandb_api_key = \"[redacted]\"  # mine");
    check("{\"apiKey\": \"abc\", \"n_layer\": 12}", "{\"apiKey\": \"[redacted]\", \"n_layer\": 12}");
    check("train.py --password hunter2 --compile=False", "train.py --password [redacted] --compile=False");
    check("train.py --api_key=abc,def", "train.py --api_key=[redacted]");
    check("-H 'Authorization: Bearer abc.def'", "-H 'Authorization: Bearer [redacted]'");
    check("git clone https://ada:pw@example.org/x", "git clone https://[redacted]@example.org/x");
    check(
        "pip install git+https://ghp_0123456789abcdef0123@github.com/x",
        "pip install git+https://[redacted]@github.com/x",
    );
    check("AKIAIOSFODNN7EXAMPLE", "[redacted]");
    check("aws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key=[redacted]");
    check("wandb login 0123456789abcdef0123456789abcdef01234567", "wandb login [redacted]");
    check("login(token='hf_x')", "login(token='[redacted]')");
    check("wandb.login(key=\"local abc\")", "wandb.login(key=\"[redacted]\")");
    check("PGPASSWORD=abc psql; GITHUB_PAT=abc", "PGPASSWORD=[redacted] psql; GITHUB_PAT=[redacted]");
    check("os.environ[\"WANDB_API_KEY\"] = \"abc\"", "os.environ[\"WANDB_API_KEY\"] = \"[redacted]\"");
    check("os.environ['HF_TOKEN']='abc'", "os.environ['HF_TOKEN']='[redacted]'");
    check(
        "post to https://hooks.slack.com/services/T0/B0/abc now",
        "post to https://hooks.slack.com/services/[redacted] now",
    );
    check("--webhook https://example.org/x", "--webhook [redacted]");
    check("use hf_abcdefghijklmnopqrstuvwxyz now", "use [redacted] now");
    check("//packages.example.org/:_authToken=npm_x", "//packages.example.org/:_authToken=[redacted]");
    for form in ["npm_", "gsk_", "nvapi-", "pypi-", "sk-proj-", "glpat-", "hvs.", "xapp-", "sk_live_", "dop_v1_"] {
        check(&format!("use {form}0123456789abcdef0123 now"), "use [redacted] now");
    }
    check("mytoken=abc hftoken: 'abc' --hftoken abc", "mytoken=[redacted] hftoken: '[redacted]' --hftoken [redacted]");
    check("train.py --key=abc --key abc", "train.py --key=[redacted] --key [redacted]");
    check("key = 'hunter23xK9qLm4Z'; wandbkey=hunter23xK9qLm4Z", "key = '[redacted]'; wandbkey=[redacted]");
    check("credentials = (\"ada\", \"pw\")\nlr = 1", "credentials = [redacted]\nlr = 1");
    check("creds = [('a', 'pw'),\n  ('b', 'pw2')]; x = (1)", "creds = [redacted]; x = (1)");
    check("api_key = load(\"pw\") or ''", "api_key = [redacted] or ''");
    check("auth={'user': 'ada', 'word': 'pw'})", "auth=[redacted])");
    check("a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a [redacted] b");
    check(
        "https://x.blob.core.windows.net/a?sv=1&sig=abc%3D&se=2",
        "https://x.blob.core.windows.net/a?sv=1&sig=[redacted]&se=2",
    );
}

#[test]
fn secrets_in_expressions_of_python_are_redacted() {
    check("api_key = 'abc' + 'def'\nlr = 1", "api_key = '[redacted]'\nlr = 1");
    check("api_key = PREFIX + \"def\" + tail(1)\nlr = 1", "api_key = [redacted]\nlr = 1");
    check("api_key = 'abc' \\\n    'def'\nlr = 1", "api_key = '[redacted]'\nlr = 1");
    check("api_key = ('abc' 'def')", "api_key = [redacted]");
    check("api_key = f'{prefix}def'", "api_key = f'[redacted]'");
    check("url = f'https://example.org/?token={prefix}def{n}x'", "url = f'https://example.org/?token=[redacted]'");
    check("passwords = {'db': 'abc', 'web': 'def'}", "passwords = [redacted]");
    check("wandb_apikeys: {'a': 'abc'}", "wandb_apikeys: [redacted]");
}

#[test]
fn rare_names_of_secrets_are_known() {
    check("https://x.example.org/a?X-Amz-Signature=abc&n=1", "https://x.example.org/a?X-Amz-Signature=[redacted]&n=1");
    check("tool --userpass ada:abc --otp 123456 --n 1", "tool --userpass [redacted] --otp [redacted] --n 1");
    check("tool --otp=123456; dbpass='abc'", "tool --otp=[redacted]; dbpass='[redacted]'");
    check("tok=hunter23xK9qLm4Z", "tok=[redacted]");
    let mut shell = ["sh", "-c", "tool token hunter23xK9qLm4Z"].map(str::to_owned);
    command(&mut shell);
    assert_eq!(shell[2], "tool token [redacted]");
}

#[test]
fn non_secret_text_stays() {
    for text in [
        "python train.py config/train_gpt2.py --batch_size=12 --learning_rate=6e-4",
        "tokens per iteration will be: 491,520",
        "number of parameters: 123.59M",
        "eos_token = '<|endoftext|>'\nmax_new_tokens = 500\ntokenizer = 'gpt2'",
        "PWD=/home/ada nice python train.py",
        "KeyError: 'author'",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 11.76 GiB",
        "out_dir = 'out'\neval_interval = 2000\nwandb_log = False # a comment\nwandb_project = 'owt'",
        "https://example.org/a@b",
        "a key, a token and a password",
        "--auth --compile=False",
        "forward pass: 3.2 ms",
        "eostoken = 3\nmax_token = 500\nnum_token=7",
        "sorted(rows, key=len), key = 'name', monkey = 'hunter23xK9qLm4Z'",
        "nanoGPT's --key=value",
        "iter 10: loss 2.3456, time 12.34ms, mfu 3.21%",
        "step 250: train loss 1.9871, val loss 2.0012",
        "grep --pattern x --path data/openwebtext --patience 3",
        "pat = 'name'; pattern=r'(\\d+)'; path = '/data/x'; patch=3",
        "session 3 started, session: 4, session = tf.Session(), new session",
        "the session ended; each session has 64 values",
        "f('name', 'token', 3), ['password', 'token', 'lr'], KeyError: ('a', 'password', 'b')",
        "set the password first",
        "Please login (or pass --anonymous) to continue",
        "if not logged in: wandb.login()",
        "tok = tokenizer('gpt2'); n_tok=500; tok/s: 1234; bypass=1; compass: north; signature: (self, x)",
        "accredited, credit: 3, credits=4, power: 5 pW",
    ] {
        assert!(matches!(super::text(text), Cow::Borrowed(_)), "{text}: {}", super::text(text));
    }
}

#[test]
fn the_word_after_an_option_is_its_value() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut given = words("python train.py --wandb-key abc --lr 1 -password x --auth --dtype=float16 --token=a;b)c");
    command(&mut given);
    assert_eq!(
        given.join(" "),
        "python train.py --wandb-key [redacted] --lr 1 -password [redacted] --auth --dtype=float16 \
         --token=[redacted]"
    );
    let mut shell = vec!["sh".to_owned(), "-c".to_owned(), "HF_TOKEN=x exec python train.py --password y".to_owned()];
    command(&mut shell);
    assert_eq!(shell[2], "HF_TOKEN=[redacted] exec python train.py --password [redacted]");
}

#[test]
fn no_text_panics_and_twice_is_once() {
    let parts =
        ["--password", "token", "=", ":", " ", "'", "\"", "ä", "\n", "[redacted]", "https://", "@", "x", "-", "sig="];
    let mut chance: u64 = 7;
    for _ in 0..20_000 {
        let mut given = String::new();
        for _ in 0..8 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            given.push_str(parts[usize::try_from(chance >> 33).expect("small") % parts.len()]);
        }
        let once = text(&given).into_owned();
        assert_eq!(text(&once), once, "{given:?}");
    }
}
