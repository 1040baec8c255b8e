//! The page's client of the agent. It passes events to the state machine in `state::rig::connection` and performs the
//! resulting actions. Messages are folded into the rig's state and drawn at most ten times per second.

use std::time::Duration;

use headroom_protocol::{ClientMessage, PROTOCOL_VERSION, Scope, ServerMessage, event::EventKind};
use leptos::{prelude::*, task::spawn_local};

use crate::{
    agent_client::{
        rest,
        socket::{self, SocketEvent},
    },
    browser::{self, rig as chrome},
    components::rig::{PageRequest, RigContext, SettingsState},
    state::rig::{
        ChangedParts, ShownRun,
        connection::{Connection, ConnectionAction, Stage},
        link::{device_name, pairing_code},
        messages,
        orders::{self, LaunchOptions, RunAction, START},
    },
    text::{self, say, t},
};

/// Interval at which timeouts are checked.
const TICK: Duration = Duration::from_millis(500);
/// Minimum time between two drawings in milliseconds: 100 ms, less about half a frame.
const DRAW_EVERY_MS: f64 = 92.0;

/// The changes that are not drawn yet.
#[derive(Clone, Copy, Default)]
struct Pending {
    changed: ChangedParts,
    is_scheduled: bool,
    drawn_at: f64,
}

/// The state that callbacks share.
#[derive(Clone, Copy)]
pub struct Client {
    pub desk: RigContext,
    pending: StoredValue<Pending>,
    /// Whether the last greeting requested missed events.
    asked: StoredValue<bool>,
}

/// Connects to the agent and reconnects for the lifetime of the page.
pub fn begin() -> Client {
    let code = taken_code();
    let now_ms = chrome::now_ms();
    let (connection, first) = Connection::begin(now_ms, chrome::kept_token(), code);
    let asked = RwSignal::new(None::<PageRequest>);
    let desk = RigContext::new(connection, now_ms, Callback::new(move |ask| asked.set(Some(ask))));
    let client = Client { desk, pending: StoredValue::new(Pending::default()), asked: StoredValue::new(false) };
    socket::listen(move |event| client.hear(event));
    browser::on_history_step(move || {
        if let Some(code) = taken_code() {
            client.tell(|connection, now_ms| connection.pair(now_ms, code));
        }
    });
    chrome::on_wake(move || client.tell(Connection::woke));
    set_interval(
        move || {
            client.tell(|connection, now_ms| connection.tick(now_ms, chrome::chance()));
            // Visible clocks need one update per second; a page in the background needs none.
            let now_ms = chrome::now_ms();
            if !browser::clock::is_hidden() && now_ms / 1000 != desk.now_ms.get_untracked() / 1000 {
                desk.now_ms.set(now_ms);
            }
        },
        TICK,
    );
    // Actions run after the event handler that requested them, so that nothing changes during the handler.
    Effect::new(move |_| {
        if let Some(ask) = asked.get() {
            spawn_local(async move { client.answer(ask).await });
        }
    });
    client.run(Some(first));
    client
}

/// Returns the pairing code in the address and removes it from the address.
fn taken_code() -> Option<String> {
    let code = pairing_code(&browser::fragment());
    if code.is_some() {
        chrome::remove_fragment();
    }
    code
}

impl Client {
    /// Passes an event to the state machine and performs the resulting action.
    fn tell(self, event: impl FnOnce(&mut Connection, u64) -> Option<ConnectionAction>) {
        let now_ms = chrome::now_ms();
        let before = self.desk.connection.with_untracked(|connection| connection.stage.clone());
        let wanted = self.desk.connection.try_update_untracked(|connection| event(connection, now_ms)).flatten();
        // Messages arrive ten times per second without changing the displayed state of the connection.
        if self.desk.connection.with_untracked(|connection| connection.stage != before) {
            self.desk.now_ms.set(now_ms);
            self.desk.connection.notify();
        }
        self.run(wanted);
    }

    fn run(self, wanted: Option<ConnectionAction>) {
        match wanted {
            None => {}
            Some(ConnectionAction::Open) if socket::open() => {}
            Some(ConnectionAction::Open) => self.tell(|connection, now_ms| connection.closed(now_ms, chrome::chance())),
            Some(ConnectionAction::Close) => {
                socket::close();
                // A refused token is not tried again on the next visit.
                if self.desk.connection.with_untracked(|connection| connection.token.is_none()) {
                    chrome::keep_token(None);
                }
            }
            Some(ConnectionAction::Hello) => self.greet(),
            Some(ConnectionAction::Probe) => spawn_local(async move {
                let found = rest::probe().await;
                self.tell(|connection, now_ms| connection.probed(now_ms, found, chrome::chance()));
            }),
            Some(ConnectionAction::Pair(code)) => spawn_local(async move {
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
        let hello = ClientMessage::Hello { protocol: PROTOCOL_VERSION, token, after, language: None };
        if let Ok(hello) = serde_json::to_string(&hello) {
            socket::send(&hello);
        }
    }

    /// Returns the token, or an empty one, which the agent refuses.
    pub fn token(self) -> String {
        self.desk.connection.with_untracked(|connection| connection.token.clone()).unwrap_or_default()
    }

    fn hear(self, event: SocketEvent) {
        match event {
            SocketEvent::Opened => self.tell(|connection, _| connection.opened()),
            SocketEvent::Closed => self.tell(|connection, now_ms| connection.closed(now_ms, chrome::chance())),
            // Messages unknown to this page, from a newer agent, are ignored.
            SocketEvent::Message(text) => match serde_json::from_str(&text) {
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
            ServerMessage::Event(event) => matches!(event.what, EventKind::SettingsChanged),
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

    /// Draws the changes in the next frame, at most ten times per second. A hidden page has no frames.
    pub fn draw(self, changed: ChangedParts) {
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
        let mut changed = ChangedParts::default();
        self.pending.update_value(|pending| {
            changed = std::mem::take(&mut pending.changed);
            (pending.is_scheduled, pending.drawn_at) = (false, browser::now_millis());
        });
        self.desk.draw(changed);
    }

    /// Notifies the user of alerts as they happen, if enabled. Missed alerts are on the page.
    fn notify(self, event: &headroom_protocol::event::Event) {
        let is_news = match &event.what {
            EventKind::Alert { .. } => true,
            // The end of a dismissed alert is not notified.
            EventKind::AlertOver { alert, gpu } => self
                .desk
                .look(|rig| rig.fired.iter().any(|fired| fired.is(alert, gpu.as_deref(), event.run.as_deref()))),
            _ => false,
        };
        if is_news {
            let (title, words) = self.desk.look(|rig| {
                let title = if rig.name.is_empty() { t(text::NAME).to_owned() } else { rig.name.clone() };
                (title, messages::event(rig, event))
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
                    // The agent also announces settings that this page has just saved; their state remains `Saved`.
                    if self.desk.kept.with_untracked(|kept| *kept != SettingsState::Saved) {
                        self.desk.kept.set(SettingsState::Fetched);
                    }
                }
                Err(message) => self.desk.kept.set(SettingsState::NotFetched(message)),
            }
        });
    }

    /// Fetches the configs, data sets and devices. A restarted agent may offer others.
    fn fetch_training(self) {
        spawn_local(async move {
            let allowed = match rest::training(&self.token()).await {
                Ok(training) => {
                    self.desk.order.update(|order| orders::fit(order, &training));
                    LaunchOptions::Is(training)
                }
                Err(message) => LaunchOptions::Failed(message),
            };
            // An unchanged list does not rebuild the form.
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
            // The name applies to one run only.
            self.desk.order.update(|order| order.name = None);
            // The new run is the newest, so it is shown unless another run is active.
            self.desk.chosen_run.set(None);
            say(&text::rig_ordered(name))
        });
        self.pressed(START, how);
    }

    async fn act(self, run: String, act: RunAction) {
        if self.desk.presses.try_update(|presses| presses.begin(&run)) == Some(true) {
            // A stopped or resumed run stays selected, also if another run is newer.
            if matches!(act, RunAction::Stop | RunAction::GoOn) {
                self.desk.chosen_run.set(Some(run.clone()));
            }
            let how = match act.request() {
                // The result of the action arrives as an event.
                Some(request) => rest::act(&self.token(), &run, request).await.map(|()| String::new()),
                None => self.start_again(&run).await,
            };
            self.pressed(&run, how);
        }
    }

    /// Starts a run with the order of an earlier run and shows the new run.
    async fn start_again(self, run: &str) -> Result<String, rest::RequestError> {
        let of = |watched: &ShownRun| watched.run.order.clone();
        let order = self.desk.look(|rig| rig.runs.iter().find(|watched| watched.run.id == run).and_then(of));
        let (id, name) = rest::start(&self.token(), &order.unwrap_or_default()).await?;
        self.desk.chosen_run.set(Some(id));
        Ok(say(&text::rig_ordered(name)))
    }

    fn pressed(self, name: &str, how: Result<String, rest::RequestError>) {
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
                self.desk.kept.set(SettingsState::Saved);
            }
            // The settings were changed elsewhere; the form shows the conflict.
            Ok(None) => {
                self.desk.kept.set(SettingsState::Fetched);
                self.fetch_settings();
            }
            Err(message) => self.desk.kept.set(SettingsState::NotSaved(message)),
        }
    }

    async fn answer(self, ask: PageRequest) {
        match ask {
            PageRequest::Again => self.tell(Connection::again),
            PageRequest::Token(token) => {
                chrome::keep_token(Some(&token));
                self.tell(|connection, now_ms| connection.take_token(now_ms, token));
            }
            PageRequest::Forget => self.tell(Connection::forget_token),
            PageRequest::Save => self.save().await,
            PageRequest::Start => self.start().await,
            PageRequest::Act(run, act) => self.act(run, act).await,
            // The dismissal arrives as an event.
            PageRequest::Dismiss(event) => {
                let said = rest::dismiss(&self.token(), event).await.err();
                let said = said.map(|message| say(&text::rig_not_dismissed(message))).unwrap_or_default();
                self.desk.not_dismissed.set(said);
            }
        }
    }
}
