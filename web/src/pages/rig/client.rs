//! The page's side of the agent: what happens is told to the machine in `state::rig::connection`, and what that wants is
//! done; messages are folded into the rig and drawn, ten times a second at most.

use std::time::Duration;

use headroom_shared::protocol::{
    ClientMessage, PROTOCOL_VERSION, Scope, ServerMessage, event::What, read_server_message,
};
use leptos::{prelude::*, task::spawn_local};

use super::history::keep_history;
use crate::{
    agent_client::{
        rest,
        socket::{self, Told},
    },
    browser::{self, rig as chrome},
    components::rig::{Ask, Desk, Kept},
    state::rig::{
        Changed, Watched,
        connection::{Connection, Do, Stage},
        link::{device_name, pairing_code},
        orders::{self, Act, Allowed, START},
        words,
    },
    text::{self, say, t},
};

/// How often waits and silence are looked at.
const TICK: Duration = Duration::from_millis(500);
/// Between two drawings; a screen's frame earlier is early enough.
const DRAW_EVERY_MS: f64 = 92.0;

/// What waits to be drawn.
#[derive(Clone, Copy, Default)]
struct Pending {
    changed: Changed,
    is_scheduled: bool,
    drawn_at: f64,
}

/// Everything that callbacks hold.
#[derive(Clone, Copy)]
pub struct Client {
    pub desk: Desk,
    pending: StoredValue<Pending>,
    /// Whether the greeting that was sent last asked for what was missed.
    asked: StoredValue<bool>,
}

/// Connects, and keeps connected for as long as the page lives.
pub fn begin() -> Client {
    let code = taken_code();
    let now_ms = chrome::now_ms();
    let (connection, first) = Connection::begin(now_ms, chrome::kept_token(), code);
    let asked = RwSignal::new(None::<Ask>);
    let desk = Desk::new(connection, now_ms, Callback::new(move |ask| asked.set(Some(ask))));
    let client = Client { desk, pending: StoredValue::new(Pending::default()), asked: StoredValue::new(false) };
    socket::listen(move |told| client.hear(told));
    browser::on_fragment_change(move || {
        if let Some(code) = taken_code() {
            client.tell(|connection, now_ms| connection.pair(now_ms, code));
        }
    });
    chrome::on_wake(move || client.tell(Connection::woke));
    set_interval(
        move || {
            client.tell(|connection, now_ms| connection.tick(now_ms, chrome::chance()));
            // Once a second is enough for eyes, and in the background for nobody.
            let now_ms = chrome::now_ms();
            if !browser::clock::is_hidden() && now_ms / 1000 != desk.now_ms.get_untracked() / 1000 {
                desk.now_ms.set(now_ms);
            }
        },
        TICK,
    );
    // Answers to a press leave the press's own call before anything changes under it.
    Effect::new(move |_| {
        if let Some(ask) = asked.get() {
            spawn_local(async move { client.answer(ask).await });
        }
    });
    keep_history(client);
    client.run(Some(first));
    client
}

/// The code in the address, which is in nobody's address from then on.
fn taken_code() -> Option<String> {
    let code = pairing_code(&browser::fragment());
    if code.is_some() {
        chrome::remove_fragment();
    }
    code
}

impl Client {
    /// Tells the machine something, and does what it wants.
    fn tell(self, event: impl FnOnce(&mut Connection, u64) -> Option<Do>) {
        let now_ms = chrome::now_ms();
        let before = self.desk.connection.with_untracked(|connection| connection.stage.clone());
        let wanted = self.desk.connection.try_update_untracked(|connection| event(connection, now_ms)).flatten();
        // Messages come ten times a second, and change nothing that is drawn of the connection.
        if self.desk.connection.with_untracked(|connection| connection.stage != before) {
            self.desk.now_ms.set(now_ms);
            self.desk.connection.notify();
        }
        self.run(wanted);
    }

    fn run(self, wanted: Option<Do>) {
        match wanted {
            None => {}
            Some(Do::Open) if socket::open() => {}
            Some(Do::Open) => self.tell(|connection, now_ms| connection.closed(now_ms, chrome::chance())),
            Some(Do::Close) => {
                socket::close();
                // A token that is refused is not tried again at the next visit.
                if self.desk.connection.with_untracked(|connection| connection.token.is_none()) {
                    chrome::keep_token(None);
                }
            }
            Some(Do::Hello) => self.greet(),
            Some(Do::Probe) => spawn_local(async move {
                let found = rest::probe().await;
                self.tell(|connection, now_ms| connection.probed(now_ms, found, chrome::chance()));
            }),
            Some(Do::Pair(code)) => spawn_local(async move {
                let paired = rest::pair(&code, &device_name(&chrome::user_agent())).await;
                if let Ok(token) = &paired {
                    chrome::keep_token(Some(token));
                }
                self.tell(|connection, now_ms| connection.paired(now_ms, paired));
            }),
        }
    }

    fn greet(self) {
        let token = self.token();
        let after = self.desk.look(crate::state::rig::Rig::after);
        self.asked.set_value(after.is_some());
        let language = Some(browser::language());
        let hello = ClientMessage::Hello { protocol: PROTOCOL_VERSION, token, after, language };
        if let Ok(hello) = serde_json::to_string(&hello) {
            socket::send(&hello);
        }
    }

    /// The token; an agent refuses none.
    pub fn token(self) -> String {
        self.desk.connection.with_untracked(|connection| connection.token.clone()).unwrap_or_default()
    }

    fn hear(self, told: Told) {
        match told {
            Told::Opened => self.tell(|connection, _| connection.opened()),
            Told::Closed => self.tell(|connection, now_ms| connection.closed(now_ms, chrome::chance())),
            // What a later agent says besides is nothing to this page.
            Told::Message(text) => match read_server_message(&text) {
                Ok(message) => self.take(message),
                Err(_) => self.tell(|connection, now_ms| {
                    connection.heard(now_ms, false);
                    None
                }),
            },
        }
    }

    fn take(self, message: ServerMessage) {
        match &message {
            ServerMessage::Hello(hello) => {
                let (protocol, time_ms) = (hello.protocol, hello.time_ms);
                self.tell(|connection, now_ms| connection.hello(now_ms, protocol));
                if self.desk.connection.with_untracked(|connection| connection.stage != Stage::Live) {
                    return;
                }
                let ahead = i64::try_from(time_ms).unwrap_or(0) - i64::try_from(chrome::now_ms()).unwrap_or(0);
                self.desk.ahead_ms.set(ahead);
            }
            ServerMessage::Refused(refusal) => {
                let refusal = refusal.clone();
                self.tell(|connection, now_ms| connection.refused(now_ms, refusal, chrome::chance()));
                return;
            }
            ServerMessage::Event(event) => self.notify(event),
            _ => {}
        }
        let is_greeting = matches!(message, ServerMessage::Hello(_));
        let has_new_settings = match &message {
            ServerMessage::Hello(_) => true,
            ServerMessage::Event(event) => matches!(event.what, What::SettingsChanged),
            _ => false,
        };
        let asked = self.asked.get_value();
        let taken = self.desk.change(|rig| (rig.hear(message, asked), rig.is_fed(), rig.is_behind));
        let Some((changed, is_fed, is_behind)) = taken else { return };
        self.tell(|connection, now_ms| {
            connection.heard(now_ms, is_fed);
            if is_behind { connection.again(now_ms) } else { None }
        });
        self.draw(changed);
        if has_new_settings {
            self.fetch_settings();
        }
        if is_greeting && self.desk.look(|rig| rig.scope == Some(Scope::Control)) {
            self.fetch_training();
        }
    }

    /// Draws what changed in the next frame, and not before a tenth of a second is over. A hidden page has no frames.
    pub fn draw(self, changed: Changed) {
        let mut is_first = false;
        self.pending.update_value(|pending| {
            pending.changed = pending.changed.and(changed);
            is_first = !std::mem::replace(&mut pending.is_scheduled, true);
        });
        if is_first {
            request_animation_frame(move || {
                let early =
                    self.pending.with_value(|pending| DRAW_EVERY_MS - (browser::now_millis() - pending.drawn_at));
                if early > 0.0 {
                    set_timeout(move || self.flush(), Duration::from_secs_f64(early / 1000.0));
                } else {
                    self.flush();
                }
            });
        }
    }

    fn flush(self) {
        let mut changed = Changed::default();
        self.pending.update_value(|pending| {
            changed = std::mem::take(&mut pending.changed);
            (pending.is_scheduled, pending.drawn_at) = (false, browser::now_millis());
        });
        self.desk.draw(changed);
    }

    /// Tells the person what happens now, where they want it; what was missed is on the page.
    fn notify(self, event: &headroom_shared::protocol::event::Event) {
        let is_news = match &event.what {
            What::Alert { .. } => true,
            // Of one that was dismissed nobody wants to hear any more.
            What::AlertOver { alert, gpu } => self
                .desk
                .look(|rig| rig.fired.iter().any(|fired| fired.is(alert, gpu.as_deref(), event.run.as_deref()))),
            _ => false,
        };
        if is_news {
            let (title, words) = self.desk.look(|rig| {
                let title = if rig.name.is_empty() { t(text::NAME).to_owned() } else { rig.name.clone() };
                (title, words::event(rig, event))
            });
            let tag = format!("{:?}", event.run);
            chrome::notify(&title, &words.unwrap_or_default(), &tag);
        }
    }

    fn fetch_settings(self) {
        spawn_local(async move {
            match rest::settings(&self.token()).await {
                Ok((settings, tag)) => {
                    self.desk.settings.set(settings.clone());
                    self.desk.form.update(|form| form.take(settings, tag));
                    // What one has just saved is told as well, and stays saved.
                    if self.desk.kept.with_untracked(|kept| *kept != Kept::Saved) {
                        self.desk.kept.set(Kept::Fetched);
                    }
                }
                Err(message) => self.desk.kept.set(Kept::NotFetched(message)),
            }
        });
    }

    /// What can be started, which an agent that was started anew may say anew.
    fn fetch_training(self) {
        spawn_local(async move {
            let allowed = match rest::training(&self.token()).await {
                Ok(training) => {
                    self.desk.order.update(|order| orders::fit(order, &training));
                    Allowed::Is(training)
                }
                Err(message) => Allowed::Failed(message),
            };
            // The form stays as it is where nothing changed.
            if self.desk.allowed.with_untracked(|known| *known != allowed) {
                self.desk.allowed.set(allowed);
            }
        });
    }

    async fn start(self) {
        let order = self.desk.order.with_untracked(orders::made);
        if self.desk.presses.try_update(|presses| presses.begin(START)) != Some(true) {
            return;
        }
        let how = rest::start(&self.token(), &order).await.map(|(_, name)| {
            // The next one has a name of its own.
            self.desk.order.update(|order| order.name = None);
            // What is at work is shown, or else the newest, which it is.
            self.desk.chosen_run.set(None);
            say(&text::rig_ordered(name))
        });
        self.pressed(START, how);
    }

    async fn act(self, run: String, act: Act) {
        if self.desk.presses.try_update(|presses| presses.begin(&run)) == Some(true) {
            // Whoever stops a run goes on looking at it, also where another is newer.
            if matches!(act, Act::Stop | Act::GoOn) {
                self.desk.chosen_run.set(Some(run.clone()));
            }
            let how = match act.request() {
                // What is done is told as everything that happens.
                Some(request) => rest::act(&self.token(), &run, request).await.map(|()| String::new()),
                None => self.start_again(&run).await,
            };
            self.pressed(&run, how);
        }
    }

    /// Orders what a run was ordered with, and shows what comes of it.
    async fn start_again(self, run: &str) -> Result<String, rest::Failed> {
        let of = |watched: &Watched| watched.run.order.clone();
        let order = self.desk.look(|rig| rig.runs.iter().find(|watched| watched.run.id == run).and_then(of));
        let (id, name) = rest::start(&self.token(), &order.unwrap_or_default()).await?;
        self.desk.chosen_run.set(Some(id));
        Ok(say(&text::rig_ordered(name)))
    }

    fn pressed(self, name: &str, how: Result<String, rest::Failed>) {
        let how = how.map_err(|message| say(&text::rig_not_done(message)));
        self.desk.presses.update(|presses| presses.end(name, how));
    }

    async fn save(self) {
        let (made, tag) = self.desk.form.with_untracked(|form| (form.made(), form.tag()));
        let Some(settings) = made else { return };
        match rest::set_settings(&self.token(), &settings, &tag).await {
            Ok(Some(tag)) => {
                self.desk.settings.set(settings.clone());
                self.desk.form.update(|form| form.saved(settings, tag));
                self.desk.kept.set(Kept::Saved);
            }
            // They were changed elsewhere, and the form will say so.
            Ok(None) => {
                self.desk.kept.set(Kept::Fetched);
                self.fetch_settings();
            }
            Err(message) => self.desk.kept.set(Kept::NotSaved(message)),
        }
    }

    async fn answer(self, ask: Ask) {
        match ask {
            Ask::Again => self.tell(Connection::again),
            Ask::Token(token) => {
                chrome::keep_token(Some(&token));
                self.tell(|connection, now_ms| connection.take_token(now_ms, token));
            }
            Ask::Forget => self.tell(Connection::forget_token),
            Ask::Save => self.save().await,
            Ask::Start => self.start().await,
            Ask::Act(run, act) => self.act(run, act).await,
            // That it is dismissed is told as everything that happens.
            Ask::Dismiss(event) => {
                let said = rest::dismiss(&self.token(), event).await.err();
                let said = said.map(|message| say(&text::rig_not_dismissed(message))).unwrap_or_default();
                self.desk.not_dismissed.set(said);
            }
        }
    }
}
