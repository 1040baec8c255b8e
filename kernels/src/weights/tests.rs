//! Tests with files of every supported kind, written here and by the format's own library, and with every kind of
//! damage.

use std::{collections::BTreeMap, io::Cursor};

use headroom_planner::gpt::{GptConfig, GptShape, tensors::Tensor};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::*;
use crate::{layout::Layout, rng::Stream};

const SHAPE: GptShape =
    GptShape { n_layer: 2, n_head: 2, n_embd: 8, block_size: 5, vocab_size: 11, dropout: 0.0, bias: true };

fn model(bias: bool) -> (GptConfig, Vec<f32>) {
    let config = GptConfig::new(GptShape { bias, ..SHAPE }).expect("valid");
    let mut stream = Stream::new(7, 0);
    let len = Layout::new(&config).expect("small").len();
    #[expect(clippy::cast_possible_truncation, reason = "any numbers will do")]
    let params = (0..len).map(|_| stream.normal() as f32).collect();
    (config, params)
}

fn file(config: &GptConfig, params: &[f32], naming: NamingScheme) -> Vec<u8> {
    let mut file = Vec::new();
    write_model(&mut file, config, params, naming, &BTreeMap::new()).expect("writing to memory cannot fail");
    file
}

fn loaded(file: &[u8]) -> Result<(Catalogue, Vec<f32>), WeightsError> {
    load(&mut Cursor::new(file), &Hints::with_heads(2)).map_err(|error| match error {
        LoadError::Weights(error) => error,
        other => panic!("{other}"),
    })
}

/// A tensor of a file to write.
#[derive(Clone)]
struct Piece {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    data: Vec<u8>,
}

/// The tensors of a file, read by the library.
fn pieces(file: &[u8]) -> Vec<Piece> {
    let read = SafeTensors::deserialize(file).expect("the library reads it");
    let piece = |(name, view): (String, TensorView<'_>)| Piece {
        name,
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        data: view.data().to_vec(),
    };
    read.tensors().into_iter().map(piece).collect()
}

/// A file written by the library, in its own order.
fn library_file(pieces: &[Piece], metadata: &[(&str, &str)]) -> Vec<u8> {
    let views = pieces.iter().map(|piece| {
        let view = TensorView::new(piece.dtype, piece.shape.clone(), &piece.data).expect("as long as its shape");
        (piece.name.clone(), view)
    });
    let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    safetensors::serialize(views, Some(metadata)).expect("the library writes it")
}

/// A file with a given header and zeros as data.
fn raw(header: &str, data_bytes: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.resize(file.len() + data_bytes, 0);
    file
}

#[track_caller]
fn check_error(file: &[u8], expected: &str) {
    let error = loaded(file).expect_err("a broken file").to_string();
    assert!(error.contains(expected), "{error:?} does not say {expected:?}");
}

#[test]
fn written_weights_read_back_under_both_namings() {
    for bias in [true, false] {
        let (config, params) = model(bias);
        let (catalogue, read) = loaded(&file(&config, &params, NamingScheme::NanoGpt)).expect("a model");
        assert_eq!((catalogue.config(), catalogue.naming()), (&config, NamingScheme::NanoGpt));
        assert_eq!((catalogue.origin(), catalogue.heads_from()), (Origin::NanoGpt, HeadsFrom::Given));
        assert_eq!(read, params);

        // A Hugging Face file always has biases; missing ones are zero.
        let (catalogue, read) = loaded(&file(&config, &params, NamingScheme::HuggingFace)).expect("a model");
        assert_eq!((catalogue.origin(), catalogue.config().bias()), (Origin::HuggingFace, true));
        let old = Layout::new(&config).expect("small");
        for entry in catalogue.layout().entries() {
            let layer = entry.parameter.layer.map(|layer| usize::try_from(layer).expect("small"));
            let written = old.range(entry.parameter.tensor, layer);
            let written = written.map_or_else(|| vec![0.0; entry.range.len()], |range| params[range].to_vec());
            assert_eq!(read[entry.range.clone()], written, "{}", entry.name);
        }
    }
}

#[test]
fn hugging_faces_linear_layers_lie_the_other_way_round() {
    let (config, params) = model(true);
    let layout = Layout::new(&config).expect("small");
    let qkv = &params[layout.range(Tensor::QkvW, Some(1)).expect("there")];
    let all = pieces(&file(&config, &params, NamingScheme::HuggingFace));
    let piece = all.iter().find(|piece| piece.name == "transformer.h.1.attn.c_attn.weight").expect("there");
    assert_eq!(piece.shape, [8, 24]);
    // Row 2, column 19 in the file is row 19, column 2 here.
    let at = (2 * 24 + 19) * 4;
    assert_eq!(piece.data[at..at + 4], qkv[19 * 8 + 2].to_le_bytes());
}

#[test]
fn the_librarys_files_are_read_whatever_their_names_begin_with() {
    let (config, params) = model(true);
    for (naming, prefix) in [
        (NamingScheme::NanoGpt, "_orig_mod."),
        (NamingScheme::NanoGpt, "module._orig_mod."),
        (NamingScheme::HuggingFace, ""),
    ] {
        let mut all = pieces(&file(&config, &params, naming));
        for piece in &mut all {
            let bare = piece.name.strip_prefix("transformer.").filter(|_| prefix.is_empty()).unwrap_or(&piece.name);
            piece.name = format!("{prefix}{bare}");
        }
        let (catalogue, read) = loaded(&library_file(&all, &[("format", "pt")])).expect("a model");
        assert_eq!((catalogue.naming(), read), (naming, params.clone()), "{prefix}");
    }
}

#[test]
fn half_precision_is_widened() {
    let (config, mut params) = model(true);
    for (dtype, kept_bits) in [(Dtype::BF16, 0xFFFF_0000_u32), (Dtype::F16, 0xFFFF_E000)] {
        for param in &mut params {
            // Limits values to half precision's range and digits.
            *param = f32::from_bits(param.clamp(-4.0, 4.0).to_bits() & kept_bits);
            *param = if param.abs() < 1e-3 { 0.5 } else { *param };
        }
        let mut all = pieces(&file(&config, &params, NamingScheme::HuggingFace));
        for piece in &mut all {
            let values = piece.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            piece.data = values.flat_map(|value| narrowed(value, dtype).to_le_bytes()).collect();
            piece.dtype = dtype;
        }
        let (catalogue, read) = loaded(&library_file(&all, &[])).expect("a model");
        assert_eq!(read, params, "{dtype:?}");
        assert_eq!(catalogue.notes(), [Note::Widened]);
    }
}

/// Converts without rounding, as the low bits are zero.
fn narrowed(value: f32, dtype: Dtype) -> u16 {
    let bits = value.to_bits();
    let narrow = match dtype {
        Dtype::BF16 => bits >> 16,
        _ => (bits >> 16 & 0x8000) | (((bits & 0x7FFF_FFFF) - (112 << 23)) >> 13),
    };
    u16::try_from(narrow).expect("16 bits")
}

#[test]
fn any_size_of_read_gives_the_same_weights() {
    let (config, params) = model(true);
    let file = file(&config, &params, NamingScheme::HuggingFace);
    let header = read_header(&mut Cursor::new(&file)).expect("a header");
    let catalogue = Catalogue::new(&header, &Hints::with_heads(2)).expect("a model");
    for max_bytes in [0, 1, 7, 64, 100, usize::MAX] {
        let mut read = vec![f32::NAN; params.len()];
        for wanted in catalogue.reads(max_bytes) {
            let bytes =
                usize::try_from(wanted.range.start).expect("small")..usize::try_from(wanted.range.end).expect("small");
            assert!(bytes.len() <= max_bytes.max(4));
            catalogue.take(&wanted, &file[bytes], &mut read).expect("weights");
        }
        assert_eq!(read, params, "{max_bytes}");
    }
    let wanted = &catalogue.reads(64)[0];
    let short = catalogue.take(wanted, &file[..60], &mut params.clone()).expect_err("too few");
    assert!(short.to_string().contains("read 60 bytes instead of 64"), "{short}");
}

fn with_lm_head(naming: NamingScheme, change: impl Fn(&mut Piece)) -> Vec<u8> {
    let (config, params) = model(true);
    let mut all = pieces(&file(&config, &params, naming));
    let mut head = all.iter().find(|piece| piece.name.ends_with("wte.weight")).expect("there").clone();
    head.name = "lm_head.weight".to_owned();
    change(&mut head);
    all.push(head);
    library_file(&all, &[])
}

#[test]
fn a_tied_output_layer_is_accepted_and_another_is_not() {
    loaded(&with_lm_head(NamingScheme::NanoGpt, |_| {})).expect("a model");
    check_error(
        &with_lm_head(NamingScheme::HuggingFace, |head| head.data[4 * 13] ^= 1),
        "lm_head.weight differs from the embedding at element 13",
    );
    let cut = with_lm_head(NamingScheme::NanoGpt, |head| {
        head.shape[0] = 10;
        head.data.truncate(10 * 8 * 4);
    });
    check_error(&cut, "lm_head.weight is [10, 8], but the other tensors require [11, 8]");
}

#[test]
fn masks_are_accepted_and_not_read() {
    let (config, params) = model(true);
    let mut all = pieces(&file(&config, &params, NamingScheme::HuggingFace));
    // OpenAI's own files have one mask per block.
    let mask = |layer: usize, shape: &[usize]| Piece {
        name: format!("h.{layer}.attn.bias"),
        dtype: Dtype::U8,
        shape: shape.to_vec(),
        data: vec![1; shape.iter().product()],
    };
    let masked = |layer: usize| Piece {
        name: format!("h.{layer}.attn.masked_bias"),
        dtype: Dtype::F32,
        shape: vec![],
        data: vec![0; 4],
    };
    all.extend([mask(0, &[1, 1, 5, 5]), mask(1, &[1, 1, 5, 5]), masked(0), masked(1)]);
    assert_eq!(loaded(&library_file(&all, &[])).expect("a model").1, params);
    all.retain(|piece| piece.name != "h.0.attn.bias");
    all.push(mask(0, &[1, 1, 4, 5]));
    check_error(&library_file(&all, &[]), "h.0.attn.bias is [1, 1, 4, 5], but the other tensors require [1, 1, 5, 5]");
}

/// A file of a model's tensors after a change, written by the library.
fn changed(change: impl Fn(&mut Vec<Piece>)) -> Vec<u8> {
    let (config, params) = model(true);
    let mut all = pieces(&file(&config, &params, NamingScheme::NanoGpt));
    change(&mut all);
    library_file(&all, &[])
}

fn of<'a>(all: &'a mut [Piece], name: &str) -> &'a mut Piece {
    all.iter_mut().find(|piece| piece.name == name).expect("there")
}

#[test]
fn a_wrong_tensor_is_named() {
    let without = |name: &'static str| changed(move |all| all.retain(|piece| piece.name != name));
    check_error(&without("transformer.h.1.ln_2.bias"), "transformer.h.1.ln_2.bias is missing; its shape should be [8]");
    check_error(&without("transformer.wte.weight"), "transformer.wte.weight is missing");
    check_error(&without("transformer.h.0.attn.c_attn.weight"), "transformer.h.0.attn.c_attn.weight is missing");
    let renamed = |from: &'static str, to: &'static str| changed(move |all| to.clone_into(&mut of(all, from).name));
    check_error(
        &renamed("transformer.ln_f.bias", "transformer.ln_f.scale"),
        "transformer.ln_f.scale [8] is not a GPT-2 tensor",
    );
    check_error(
        &renamed("transformer.h.1.ln_1.bias", "transformer.h.7.ln_1.bias"),
        "transformer.h.1.ln_1.bias is missing",
    );
    check_error(&renamed("transformer.h.1.ln_1.bias", "transformer.h.01.ln_1.bias"), "is not a GPT-2 tensor");
    check_error(
        &renamed("transformer.h.1.ln_1.bias", "h.0.ln_1.bias"),
        "twice, the second time as transformer.h.0.ln_1.bias",
    );
    check_error(
        &renamed("transformer.h.1.ln_1.bias", "transformer.h.18446744073709551616.ln_1.bias"),
        "is not a GPT-2 tensor",
    );
    check_error(&renamed("transformer.h.1.ln_1.bias", "transformer.h.18446744073709551615.ln_1.bias"), "n_layer");
    let flat = changed(|all| of(all, "transformer.h.1.mlp.c_fc.weight").shape = vec![8, 32]);
    check_error(&flat, "transformer.h.1.mlp.c_fc.weight is [8, 32], but the other tensors require [32, 8]");
    let whole = changed(|all| of(all, "transformer.h.1.mlp.c_fc.weight").dtype = Dtype::I32);
    check_error(&whole, "transformer.h.1.mlp.c_fc.weight is stored as I32; only F32, F16 and BF16 are supported");
    let vector = changed(|all| of(all, "transformer.wpe.weight").shape = vec![40]);
    check_error(&vector, "transformer.wpe.weight is [40]");
    check_error(&raw("{}", 0), "the file has no tensors");
}

#[test]
fn a_weight_that_is_no_number_is_named() {
    for (value, shown) in [(f32::NAN, "NaN"), (f32::NEG_INFINITY, "-inf")] {
        let file = changed(|all| {
            of(all, "transformer.h.0.mlp.c_proj.weight").data[4 * 9..4 * 10].copy_from_slice(&value.to_le_bytes());
        });
        check_error(&file, &format!("transformer.h.0.mlp.c_proj.weight has {shown} at element 9"));
    }
}

#[test]
fn a_cut_file_is_reported_at_every_length() {
    let (config, params) = model(true);
    let file = file(&config, &params, NamingScheme::NanoGpt);
    for len in 0..file.len() {
        let error = loaded(&file[..len]).expect_err("cut");
        let is_expected = matches!(
            error,
            WeightsError::TooShort { .. } | WeightsError::HeaderCut { .. } | WeightsError::Truncated { .. }
        );
        assert!(is_expected && error.hint().is_some(), "{len}: {error}");
    }
    check_error(&file[..file.len() - 1], "transformer.ln_f.bias ends at byte");
    let longer = [&file[..], &[0]].concat();
    check_error(&longer, "1 bytes at the end of the file belong to no tensor");
}

#[test]
fn hostile_headers_are_refused() {
    let tensor = |shape: &str, offsets: &str| {
        format!(r#"{{"wte.weight":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    check_error(
        &raw(&tensor("[1000000000000000000]", "[0,16]"), 16),
        "wte.weight is F32 [1000000000000000000], which takes 4,000,000,000,000,000,000 bytes, but the header lists 16",
    );
    check_error(
        &raw(&tensor("[1000000000,1000000000]", "[0,4000000000000000000]"), 16),
        "wte.weight ends at byte 4,000,000,000,000,000",
    );
    check_error(
        &raw(&tensor("[18446744073709551615,18446744073709551615,4]", "[0,16]"), 16),
        "more bytes than a file can have",
    );
    check_error(&raw(&tensor("[4]", "[0,18446744073709551615]"), 16), "the header lists 18,446,744,073,709,551,615");
    check_error(&raw(&tensor("[4]", "[18446744073709551599,18446744073709551615]"), 16), "wte.weight ends at byte");
    check_error(&raw(&tensor("[4]", "[16,0]"), 16), "before its start at 16");
    check_error(&raw(&tensor("[4]", "[4,20]"), 20), "4 bytes before wte.weight belong to no tensor");
    check_error(&raw(&tensor("[-4]", "[0,16]"), 16), "wte.weight: invalid value: integer `-4`");
    check_error(&raw(&tensor("[1e18]", "[0,16]"), 16), "wte.weight: invalid type: floating point");
    check_error(&raw(&tensor("4", "[0,16]"), 16), "wte.weight: invalid type");
    check_error(&raw(&tensor("[0,8]", "[0,0]"), 0), "wpe.weight is missing");
    check_error(&raw(r#"{"wte.weight":{"dtype":"F33","shape":[4],"data_offsets":[0,16]}}"#, 16), "stored as F33");
    check_error(&raw(r#"{"wte.weight":{"dtype":"F32","shape":[4]}}"#, 16), "wte.weight: missing field `data_offsets`");
    check_error(&raw("[1]", 0), "expected an object of tensors");
    check_error(&raw("", 0), "cannot read the header");
    check_error(&raw("{\"\u{1}", 0), "cannot read the header");
    check_error(&raw(&"[".repeat(100_000), 0), "cannot read the header");
    check_error(&raw(r#"{"__metadata__":{"n_head":2}}"#, 0), "__metadata__: invalid type");
    let two = |second: &str| {
        let first = r#""wte.weight":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}"#;
        raw(&format!("{{{first},{second}}}"), 24)
    };
    check_error(&two(r#""a":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}"#), "a starts before wte.weight ends");
    check_error(
        &two(r#""wte.weight":{"dtype":"F32","shape":[2],"data_offsets":[16,24]}"#),
        "wte.weight is in the file twice",
    );
    let long = "n".repeat(100_000);
    let error = loaded(&raw(&format!(r#"{{"{long}":3}}"#), 0)).expect_err("no tensor").to_string();
    assert!(error.len() < 1000, "{} bytes", error.len());
}

#[test]
fn a_header_beyond_every_bound_is_refused_unread() {
    let error = header_range(&(1_u64 << 30).to_le_bytes(), 1 << 40).expect_err("a long header").to_string();
    assert!(error.contains("1,073,741,824 bytes") && error.contains("16,777,216"), "{error}");
    let many: Vec<_> =
        (0..=MAX_TENSORS).map(|i| format!(r#""{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#)).collect();
    check_error(&raw(&format!("{{{}}}", many.join(",")), 0), "more than 65,536 tensors");
}

#[test]
fn unknown_format_is_not_called_safetensors() {
    for bytes in [&u64::MAX.to_le_bytes()[..], b"some text in a file named ckpt.pt"] {
        let error = loaded(bytes).expect_err("no weights");
        assert!(error.to_string().contains("neither safetensors nor a PyTorch checkpoint"), "{error}");
    }
}

#[test]
fn other_formats_are_reported_by_name() {
    for (start, name) in
        [(&b"PK\x03\x04...."[..], "PyTorch"), (b"version https://git-lfs", "Git LFS"), (b"<!DOCTYPE html>", "web page")]
    {
        check_error(start, name);
    }
    check_error(b"", "the file has 0 bytes");
}

#[test]
fn heads_come_from_the_file_the_config_or_gpt2() {
    let heads = |n_embd: u64, metadata: &[(&str, &str)], hints: &Hints| {
        let config = GptConfig::new(GptShape { n_embd, n_layer: 1, n_head: 1, ..SHAPE }).expect("valid");
        let params = vec![0.0; Layout::new(&config).expect("small").len()];
        let all = pieces(&file(&config, &params, NamingScheme::NanoGpt));
        let read = load(&mut Cursor::new(library_file(&all, metadata)), hints);
        read.map(|(catalogue, _)| (catalogue.config().n_head(), catalogue.heads_from()))
            .map_err(|error| error.to_string())
    };
    let (none, four) = (Hints::default(), Hints::with_heads(4));
    assert_eq!(heads(128, &[], &none), Ok((2, HeadsFrom::HeadSize64)));
    assert_eq!(heads(128, &[], &four), Ok((4, HeadsFrom::Given)));
    assert_eq!(heads(128, &[("n_head", "8")], &four), Ok((8, HeadsFrom::File)));
    assert_eq!(heads(128, &[("model_args", r#"{"n_head":16,"bias":true}"#)], &four), Ok((16, HeadsFrom::File)));
    assert!(heads(8, &[], &none).expect_err("no 64").contains("8 channels do not divide into GPT-2's heads of 64"));
    assert!(heads(8, &[("n_head", "3")], &none).expect_err("3").contains("must be divisible by n_head (3)"));
    assert!(heads(8, &[("n_head", "many")], &none).expect_err("no number").contains("cannot read the file's n_head"));
    let args = [("model_args", r#"{"n_head":2,"vocab_size":12}"#)];
    assert!(heads(8, &args, &none).expect_err("12").contains("vocab_size is 12 there, but 11 in"));
}

#[test]
fn config_json_is_held_against_the_shapes() {
    let (config, params) = model(true);
    let file = file(&config, &params, NamingScheme::HuggingFace);
    let read = |json: &str| {
        let hints = Hints::from_config_json(json.as_bytes())?;
        let header = read_header(&mut Cursor::new(&file)).expect("a header");
        Catalogue::new(&header, &hints)
    };
    let good = r#"{"model_type":"gpt2","n_head":4,"n_embd":8,"n_layer":2,"n_positions":5,"vocab_size":11,"activation_function":"gelu_new"}"#;
    let catalogue = read(good).expect("a model");
    assert_eq!((catalogue.config().n_head(), catalogue.notes()), (4, &[Note::GeluIsExact][..]));
    let exact = good.replace("gelu_new", "gelu");
    assert_eq!(read(&exact).expect("a model").notes(), []);
    for (from, to, says) in [
        ("\"n_positions\":5", "\"n_positions\":1024", "n_positions is 1024 in config.json but 5 in"),
        ("\"gpt2\"", "\"llama\"", "model_type = llama"),
        ("gelu_new", "relu", "activation_function = relu"),
        ("\"n_head\"", "\"tie_word_embeddings\":false,\"n_head\"", "tie_word_embeddings = false"),
        ("\"n_head\"", "\"layer_norm_epsilon\":0.001,\"n_head\"", "layer_norm_epsilon = 0.001"),
        ("{", "", "cannot read config.json"),
    ] {
        let error = read(&good.replace(from, to)).expect_err(says).to_string();
        assert!(error.contains(says), "{error:?} does not say {says:?}");
    }
}

#[test]
fn own_model_file_names_its_tokenizer() {
    let (config, params) = model(false);
    let all = pieces(&file(&config, &params, NamingScheme::NanoGpt));
    let metadata = [("headroom", "1"), ("n_head", "2"), ("tokenizer", r#"{"char":"\n abc"}"#)];
    let (catalogue, _) = loaded(&library_file(&all, &metadata)).expect("a model");
    assert_eq!(catalogue.origin(), Origin::Headroom);
    assert_eq!(catalogue.tokenizer(), Some(&Tokenizer::Char("\n abc".to_owned())));
    let gpt2 = [("headroom", "1"), ("tokenizer", r#""gpt2""#)];
    assert_eq!(loaded(&library_file(&all, &gpt2)).expect("a model").0.tokenizer(), Some(&Tokenizer::Gpt2));
}
