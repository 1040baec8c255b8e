//! The model in a weights file: the config implied by the tensors' shapes, and each parameter's range in the file.

use std::{collections::HashMap, fmt, ops::Range};

use headroom_planner::gpt::{GptConfig, GptShape, tensors::Tensor};
use headroom_text::{self as text, Text};
use headroom_tokenizer::order::sorted;

use super::{
    convert::StoredDtype,
    error::{WeightsError, shown, shown_shape},
    header::{Header, TensorInfo},
    hints::Hints,
    metadata::{ModelArgs, Tokenizer, keys},
    names::{CHECKSUMS, NamingScheme, Section, TensorPosition, is_bias, is_conv1d, place},
};
use crate::layout::{Entry, Layout};

/// The program that wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This program.
    Headroom,
    /// nanoGPT, recognised by its layout of linear layers.
    NanoGpt,
    /// Hugging Face or OpenAI, recognised by their layout.
    HuggingFace,
}

/// The source of the number of heads, which no tensor's shape contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadsFrom {
    /// The file's metadata.
    File,
    /// `config.json` or the user.
    Given,
    /// The default head size of 64, as in every GPT-2.
    HeadSize64,
}

/// A warning to show the user before the model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The number of heads is unknown, so a head size of 64 was assumed.
    HeadsAssumed {
        /// The resulting number of heads.
        n_head: u64,
    },
    /// The model was trained with GELU's tanh approximation and runs with the exact form, as in nanoGPT. The logits
    /// differ by some thousandths.
    GeluIsExact,
    /// Half-precision weights were converted to f32, which takes twice the file's bytes.
    Widened,
}

impl Note {
    /// The message.
    #[must_use]
    pub fn text(&self) -> Text {
        match *self {
            Self::HeadsAssumed { n_head } => text::note_heads_assumed(n_head),
            Self::GeluIsExact => text::NOTE_GELU_EXACT.into(),
            Self::Widened => text::NOTE_WIDENED.into(),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text())
    }
}

/// A model that can be read, whose header passed all checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    config: GptConfig,
    layout: Layout,
    naming: NamingScheme,
    origin: Origin,
    heads_from: HeadsFrom,
    notes: Vec<Note>,
    tokenizer: Option<Tokenizer>,
    parts: Vec<Part>,
}

/// A tensor to read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: String,
    stored: StoredDtype,
    /// The byte range in the file.
    range: Range<u64>,
    /// The element range in the flat buffer.
    target: Range<usize>,
    is_lm_head: bool,
    /// The number of columns of the tensor in the flat buffer, if the file stores it transposed.
    transposed_columns: Option<usize>,
}

/// A range of the file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The byte range in the file.
    pub range: Range<u64>,
    part: usize,
    /// The number of the range's first element in its tensor.
    first: usize,
}

/// The tensors of a file, by their role in the model.
struct ModelTensors<'a> {
    places: HashMap<TensorPosition, (&'a str, &'a TensorInfo)>,
}

impl<'a> ModelTensors<'a> {
    fn new(header: &'a Header, is_ours: bool) -> Result<Self, WeightsError> {
        let mut places = HashMap::new();
        let mut surplus = None;
        for (name, info) in header.tensors() {
            let Some(place) = place(name) else {
                if !is_ours || !is_training_state(name) {
                    surplus = surplus.or(Some((name, info)));
                }
                continue;
            };
            if let Some((other, _)) = places.insert(place, (name.as_str(), info)) {
                return Err(WeightsError::Duplicate { tensor: shown(other), other: Some(shown(name)) });
            }
        }
        if !places.keys().any(|place| matches!(place, TensorPosition::Parameter(..))) {
            let first = header.tensors().keys().next().map(|name| shown(name));
            return Err(WeightsError::NotGpt2 { n_tensors: header.tensors().len(), first });
        }
        match surplus {
            Some((name, info)) => Err(WeightsError::Surplus { tensor: shown(name), shape: shown_shape(&info.shape) }),
            None => Ok(Self { places }),
        }
    }

    fn get(&self, tensor: Tensor, layer: Option<u64>) -> Option<(&'a str, &'a TensorInfo)> {
        self.places.get(&TensorPosition::Parameter(tensor, layer)).copied()
    }

    /// The name and axes of a matrix that determines other tensors' shapes.
    fn axes(&self, tensor: Tensor, layer: Option<u64>) -> Result<(&'a str, [u64; 2]), WeightsError> {
        let missing = || WeightsError::Missing { tensor: tensor.full_name(layer), shape: Vec::new() };
        let (name, info) = self.get(tensor, layer).ok_or_else(missing)?;
        match info.shape[..] {
            [rows, columns] => Ok((name, [rows, columns])),
            _ => Err(WeightsError::Shape {
                tensor: shown(name),
                expected: vec![info.shape.first().copied().unwrap_or(1), info.shape.get(1).copied().unwrap_or(1)],
                found: shown_shape(&info.shape),
            }),
        }
    }

    fn n_layer(&self) -> u64 {
        let layers = self.places.keys().filter_map(|place| match place {
            TensorPosition::Parameter(_, layer) => *layer,
            _ => None,
        });
        layers.max().map_or(1, |last| last.saturating_add(1))
    }

    fn has_bias(&self) -> bool {
        self.places.keys().any(|place| matches!(place, TensorPosition::Parameter(tensor, _) if is_bias(*tensor)))
    }
}

/// Whether a tensor of a Headroom checkpoint is training state.
fn is_training_state(name: &str) -> bool {
    let moment = |section: Section| name.strip_prefix(section.name()).is_some_and(|rest| rest.starts_with('.'));
    name == CHECKSUMS || moment(Section::ExpAvg) || moment(Section::ExpAvgSq)
}

impl Catalogue {
    /// Finds the model in a file.
    ///
    /// A tensor is missing, unknown, of the wrong shape or of an unsupported element type; the number of heads is
    /// unknown; or `hints` or the file's metadata disagree with the tensors.
    pub fn new(header: &Header, hints: &Hints) -> Result<Self, WeightsError> {
        let is_ours = header.metadata().contains_key(keys::HEADROOM);
        let found = ModelTensors::new(header, is_ours)?;
        let model_args = model_args(header)?;
        let (config, heads_from) = config(&found, &model_args, hints)?;
        let naming = naming(&found, config.n_embd())?;
        let layout = Layout::new(&config)?;
        let mut parts = Vec::with_capacity(layout.entries().len() + 1);
        for entry in layout.entries() {
            let conv1d = naming == NamingScheme::HuggingFace && is_conv1d(entry.parameter.tensor);
            let mut shape: Vec<u64> = entry.shape.iter().map(|&axis| axis as u64).collect();
            if conv1d {
                shape.reverse();
            }
            let place = TensorPosition::Parameter(entry.parameter.tensor, entry.parameter.layer);
            let Some((name, info)) = found.places.get(&place) else {
                return Err(WeightsError::Missing { tensor: entry.name.clone(), shape });
            };
            let columns = conv1d.then(|| entry.shape.get(1).copied().unwrap_or(1));
            parts.push(part(name, info, &shape, entry.range.clone(), columns)?);
        }
        let embedding = layout.range(Tensor::Wte, None).unwrap_or(0..0);
        if let Some((name, info)) = found.places.get(&TensorPosition::LmHead) {
            let part = part(name, info, &[config.vocab_size(), config.n_embd()], embedding, None)?;
            parts.push(Part { is_lm_head: true, ..part });
        }
        check_buffers(&found, &config)?;
        check_said(&config, hints, &model_args)?;
        let origin = match naming {
            _ if is_ours => Origin::Headroom,
            NamingScheme::NanoGpt => Origin::NanoGpt,
            NamingScheme::HuggingFace => Origin::HuggingFace,
        };
        let mut notes = Vec::new();
        if heads_from == HeadsFrom::HeadSize64 {
            notes.push(Note::HeadsAssumed { n_head: config.n_head() });
        }
        if hints.is_gelu_approximate {
            notes.push(Note::GeluIsExact);
        }
        if parts.iter().any(|part| part.stored != StoredDtype::F32) {
            notes.push(Note::Widened);
        }
        let tokenizer = json(header, keys::TOKENIZER).filter(|_| is_ours).transpose()?;
        Ok(Self { config, layout, naming, origin, heads_from, notes, tokenizer, parts })
    }

    /// The model's shape.
    #[must_use]
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// The parameter offsets.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The naming scheme and layout of the file's tensors.
    #[must_use]
    pub fn naming(&self) -> NamingScheme {
        self.naming
    }

    /// The program that wrote the file.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The source of the number of heads.
    #[must_use]
    pub fn heads_from(&self) -> HeadsFrom {
        self.heads_from
    }

    /// The warnings to show the user.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The tokenizer, if the file contains it.
    #[must_use]
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref()
    }

    /// The ranges to read, each at most `max_bytes` or one element, in the order that [`Self::take`] expects.
    #[must_use]
    pub fn reads(&self, max_bytes: usize) -> Vec<ByteRange> {
        self.reads_where(max_bytes, |_| true)
    }

    fn reads_where(&self, max_bytes: usize, is_wanted: impl Fn(&Part) -> bool) -> Vec<ByteRange> {
        let mut reads = Vec::new();
        for (part_idx, part) in self.parts.iter().enumerate().filter(|(_, part)| is_wanted(part)) {
            let element = part.stored.bytes();
            let step = (max_bytes / element).max(1);
            for first in (0..part.target.len()).step_by(step) {
                let n = step.min(part.target.len() - first);
                let start = part.range.start + (first * element) as u64;
                reads.push(ByteRange { range: start..start + (n * element) as u64, part: part_idx, first });
            }
        }
        reads
    }

    /// Stores the bytes of a read in the flat buffer, converted to f32 and transposed if necessary.
    ///
    /// # Errors
    /// A weight is not finite, the output layer differs from the embedding, or the number of bytes is wrong.
    ///
    /// # Panics
    /// If the length of `params` differs from the layout's, or `read` belongs to another catalogue.
    pub fn take(&self, read: &ByteRange, bytes: &[u8], params: &mut [f32]) -> Result<(), WeightsError> {
        assert_eq!(params.len(), self.layout.len(), "the buffer is the layout's");
        self.take_one(read, bytes, &mut params[self.parts[read.part].target.clone()])
    }

    /// The ranges to read for one parameter of the layout, as [`Self::reads`].
    ///
    /// A separate output layer in the file is read with the embedding, for comparison.
    #[must_use]
    pub fn reads_of(&self, entry: &Entry, max_bytes: usize) -> Vec<ByteRange> {
        self.reads_where(max_bytes, |part| part.target == entry.range)
    }

    /// Stores the bytes of a read in a buffer for one parameter only, for callers that do not hold all of them.
    ///
    /// # Errors
    /// As for [`Self::take`].
    ///
    /// # Panics
    /// If the length of `target` differs from the parameter's, or `read` belongs to another catalogue.
    pub fn take_one(&self, read: &ByteRange, bytes: &[u8], target: &mut [f32]) -> Result<(), WeightsError> {
        let part = &self.parts[read.part];
        assert_eq!(target.len(), part.target.len(), "the buffer is the parameter's");
        let expected = read.range.end - read.range.start;
        if bytes.len() as u64 != expected {
            let found = bytes.len() as u64;
            return Err(WeightsError::ShortRead { tensor: shown(&part.name), expected, found });
        }
        if part.is_lm_head {
            return part.check_tied(target, read.first, bytes);
        }
        let mut place = ElementOrder::new(part.transposed_columns, target.len(), read.first);
        for (element, value) in (read.first..).zip(part.stored.values(bytes)) {
            if !value.is_finite() {
                return Err(WeightsError::NotFinite { tensor: shown(&part.name), index: element as u64, value });
            }
            target[place.advance()] = value;
        }
        Ok(())
    }
}

/// The order of elements in the flat buffer: sequential, or by columns if the file stores the matrix transposed.
struct ElementOrder {
    columns: usize,
    rows: usize,
    row: usize,
    column: usize,
}

impl ElementOrder {
    fn new(transposed_columns: Option<usize>, len: usize, first: usize) -> Self {
        // Sequential order is one column of the tensor's length.
        let columns = transposed_columns.unwrap_or(1);
        let rows = len / columns;
        Self { columns, rows, row: first % rows.max(1), column: first / rows.max(1) }
    }

    fn advance(&mut self) -> usize {
        let idx = self.row * self.columns + self.column;
        self.row += 1;
        if self.row == self.rows {
            (self.row, self.column) = (0, self.column + 1);
        }
        idx
    }
}

impl Part {
    fn check_tied(&self, embedding: &[f32], first: usize, bytes: &[u8]) -> Result<(), WeightsError> {
        let pairs = embedding[first..].iter().zip(self.stored.values(bytes));
        match (first..).zip(pairs).find(|(_, (embedding, value))| embedding.to_bits() != value.to_bits()) {
            Some((element, _)) => Err(WeightsError::Untied { tensor: shown(&self.name), index: element as u64 }),
            None => Ok(()),
        }
    }
}

fn part(
    name: &str,
    info: &TensorInfo,
    shape: &[u64],
    target: Range<usize>,
    transposed_columns: Option<usize>,
) -> Result<Part, WeightsError> {
    if info.shape != shape {
        let (expected, found) = (shape.to_vec(), shown_shape(&info.shape));
        return Err(WeightsError::Shape { tensor: shown(name), expected, found });
    }
    let stored = StoredDtype::named(&info.dtype)
        .ok_or_else(|| WeightsError::Dtype { tensor: shown(name), found: shown(&info.dtype) })?;
    let range = info.range.clone();
    Ok(Part { name: name.to_owned(), stored, range, target, is_lm_head: false, transposed_columns })
}

/// The config implied by the tensors' shapes.
fn config(
    found: &ModelTensors<'_>,
    model_args: &ModelArgs,
    hints: &Hints,
) -> Result<(GptConfig, HeadsFrom), WeightsError> {
    let (_, [vocab_size, n_embd]) = found.axes(Tensor::Wte, None)?;
    let (_, [block_size, _]) = found.axes(Tensor::Wpe, None)?;
    let (n_head, heads_from) = match (model_args.n_head, hints.n_head) {
        (Some(n_head), _) => (n_head, HeadsFrom::File),
        (None, Some(n_head)) => (n_head, HeadsFrom::Given),
        (None, None) if n_embd > 0 && n_embd.is_multiple_of(64) => (n_embd / 64, HeadsFrom::HeadSize64),
        (None, None) => return Err(WeightsError::UnknownHeads { n_embd }),
    };
    let config = GptConfig::new(GptShape {
        n_layer: found.n_layer(),
        n_head,
        n_embd,
        block_size,
        vocab_size,
        dropout: model_args.dropout.unwrap_or(0.0),
        bias: found.has_bias(),
    })?;
    Ok((config, heads_from))
}

/// The naming scheme, from the orientation of the first block's widest matrix.
fn naming(found: &ModelTensors<'_>, c: u64) -> Result<NamingScheme, WeightsError> {
    let (name, shape) = found.axes(Tensor::QkvW, Some(0))?;
    let wide = c.saturating_mul(3);
    if shape == [wide, c] {
        Ok(NamingScheme::NanoGpt)
    } else if shape == [c, wide] {
        Ok(NamingScheme::HuggingFace)
    } else {
        Err(WeightsError::Shape { tensor: shown(name), expected: vec![wide, c], found: shape.to_vec() })
    }
}

/// Buffers are not read, as the program computes its own, but their shapes must match the model.
fn check_buffers(found: &ModelTensors<'_>, config: &GptConfig) -> Result<(), WeightsError> {
    let buffers: Vec<_> = found.places.iter().collect();
    // Sorted, so that the reported one of several errors does not depend on the hash map's order.
    let buffers = sorted(&buffers, |(_, (a, _)), (_, (b, _))| a.cmp(b));
    for (place, (name, info)) in buffers {
        let expected = match place {
            TensorPosition::Mask(_) => vec![1, 1, config.block_size(), config.block_size()],
            TensorPosition::MaskedBias(_) => vec![],
            TensorPosition::Parameter(..) | TensorPosition::LmHead => continue,
        };
        if info.shape != expected {
            return Err(WeightsError::Shape { tensor: shown(name), expected, found: shown_shape(&info.shape) });
        }
    }
    Ok(())
}

/// Compares the shapes with the file's metadata and `config.json`.
fn check_said(config: &GptConfig, hints: &Hints, model_args: &ModelArgs) -> Result<(), WeightsError> {
    let found = |key: &str| match key {
        "n_layer" => config.n_layer(),
        "n_embd" => config.n_embd(),
        "vocab_size" => config.vocab_size(),
        _ => config.block_size(),
    };
    for &(key, said) in &hints.same {
        if said != found(key) {
            return Err(WeightsError::ConfigDisagrees { key, said, found: found(key) });
        }
    }
    for (key, said) in [
        ("n_layer", model_args.n_layer),
        ("n_embd", model_args.n_embd),
        ("vocab_size", model_args.vocab_size),
        ("block_size", model_args.block_size),
    ] {
        if let Some(said) = said.filter(|&said| said != found(key)) {
            let (said, found) = (said.to_string(), found(key).to_string());
            return Err(WeightsError::MetadataDisagrees { metadata: keys::MODEL_ARGS, key, said, found });
        }
    }
    if let Some(said) = model_args.bias.filter(|&said| said != config.bias()) {
        let (said, found) = (said.to_string(), config.bias().to_string());
        return Err(WeightsError::MetadataDisagrees { metadata: keys::MODEL_ARGS, key: "bias", said, found });
    }
    Ok(())
}

fn model_args(header: &Header) -> Result<ModelArgs, WeightsError> {
    let mut args: ModelArgs = json(header, keys::MODEL_ARGS).transpose()?.unwrap_or_default();
    if args.n_head.is_none() {
        args.n_head = json(header, keys::N_HEAD).transpose()?;
    }
    Ok(args)
}

fn json<T: serde::de::DeserializeOwned>(header: &Header, key: &'static str) -> Option<Result<T, WeightsError>> {
    let text = header.metadata().get(key)?;
    let metadata_error = |error: serde_json::Error| WeightsError::Metadata { key, why: shown(&error.to_string()) };
    Some(serde_json::from_str(text).map_err(metadata_error))
}
