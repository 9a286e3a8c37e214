//! The rights of clients: to publish to a channel, and to subscribe to it.
//!
//! Each of the two rights of a route is one of five: anyone, programs on this machine, nobody, the
//! holder of a token (`token`, RFC 7519), or a client that a server of the application allows
//! (`authorizer`). A request is checked once, when its head is there: a publisher before its
//! message is read, a subscriber before it is entered into any table. What the check allows is a
//! [`Grant`]; with it comes the user, where that counts (`presence`). The grant stays with a
//! subscriber for as long as it lives: parked, with a task, and in the record that another server
//! continues with. It says when the subscription ends, and whether a WebSocket may publish. Both
//! rights of a WebSocket are checked at its handshake, as its frames have no fields.
//!
//! Without a right for publishers, a channel is open to them only where just this machine can reach
//! it: on a listener of the loopback address, unless the request shows that a proxy has passed it
//! on. Elsewhere publishing is refused until the configuration has a right for it. So a channel
//! that was tried at home is not opened to the world by another address of the listener, or by a
//! proxy in front of it.
//!
//! A subscription ends with its token. Each engine's [`LocalSubscribers`](super::LocalSubscribers)
//! gives no message to a subscriber whose time is over, whether or not the end of the subscription
//! has been noticed; the parking lot and the tasks notice it within two seconds. A changed right,
//! or a changed key, ends the subscriptions of the channel, and the clients come back with the
//! rights that they have now. A server that takes over finds that out by the mark that each grant
//! has.
//!
//! A client that is refused gets a JSON object with the reason. It contains nothing of the token,
//! and neither has the log, which reports refusals seldom.

mod authorizer;
mod pattern;
mod refusal;
mod source;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::ORIGIN;
use http::{Request, Response};
use ring::digest::{SHA256, digest};
use ring::hmac;
use serde_json::Value;
use superpoll_config::{Action as RouteAction, Channel, Config, Rate, Right, TokenRule};
use superpoll_http::body::Body;
use superpoll_http::cors;
use superpoll_http::exchange::Exchange;
use superpoll_http::grant::{Grant, RightsMark, Use};
use superpoll_http::log::{Event, Level, RateLimited, Report, others};
use superpoll_http::telemetry::guard;
use superpoll_http::token::{Claims, KeyError, Verifier, read_secret};
use superpoll_http::upstream::Group;

use self::authorizer::{Authorizer, Verdict};
use self::refusal::Refusal;
use self::source::Found;
use super::callbacks::CallbackSender;
use super::presence::User;
use super::route::Channels;

/// The time between two reports of refused requests, or of clients that publish too fast.
const REFUSALS: Duration = Duration::from_secs(10);

/// The tokens of a channel.
struct Tokens {
    rule: Arc<TokenRule>,
    verifier: Verifier,
}

/// The key of the tokens of a channel cannot be used.
#[derive(thiserror::Error, Debug)]
#[error("reading the key of the channel {path}: {source}")]
pub struct ChannelKeyError {
    /// The path of the channel.
    pub path: String,
    /// The reason.
    pub source: KeyError,
}

/// The rights of a route, which all engines share.
pub struct SharedRights {
    options: Channel,
    tokens: Option<Tokens>,
    /// The secret by which the application knows who tells it of the channel.
    callback_key: Option<hmac::Key>,
    mark: RightsMark,
    report: Report,
    refusals: RateLimited,
    floods: RateLimited,
}

impl SharedRights {
    /// Reads the keys of a channel.
    ///
    /// # Errors
    ///
    /// A key cannot be read.
    pub(crate) fn new(options: &Channel, report: &Report) -> Result<Arc<SharedRights>, KeyError> {
        let tokens = options.token.clone().map(|rule| {
            let verifier = Verifier::read(&rule)?;
            Ok(Tokens { rule, verifier })
        });
        let tokens = tokens.transpose()?;
        let key = options.callbacks.as_ref().and_then(|rule| rule.key.as_ref());
        let secret = key.map(read_secret).transpose()?;
        Ok(Arc::new(SharedRights {
            options: options.clone(),
            callback_key: secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, &secret)),
            mark: mark(options, tokens.as_ref()),
            tokens,
            report: report.clone(),
            refusals: RateLimited::new(REFUSALS),
            floods: RateLimited::new(REFUSALS),
        }))
    }

    /// Reads the keys of all channels of a configuration, in its order.
    ///
    /// # Errors
    ///
    /// The first channel whose key cannot be read.
    pub fn all(
        config: &Config,
        report: &Report,
    ) -> Result<Vec<Arc<SharedRights>>, ChannelKeyError> {
        let routes = config.hosts.iter().flat_map(|host| &host.routes);
        let channels = routes.filter_map(|route| match &route.action {
            RouteAction::Channel(options) => Some((&route.path, options)),
            _ => None,
        });
        let read = channels.map(|(path, options)| {
            let rights = SharedRights::new(options, report);
            rights.map_err(|source| ChannelKeyError { path: path.to_string(), source })
        });
        read.collect()
    }

    /// Whether the same clients have the same rights, and subscribers are reported as before.
    fn is_like(&self, other: &SharedRights) -> bool {
        let fingerprint = |rights: &SharedRights| {
            rights.tokens.as_ref().map(|tokens| *tokens.verifier.fingerprint())
        };
        let reports = |options: &Channel| options.mercure.map(|hub| hub.subscriptions);
        let (one, two) = (&self.options, &other.options);
        (one.publish, one.subscribe) == (two.publish, two.subscribe)
            && (&one.token, &one.authorize) == (&two.token, &two.authorize)
            // Otherwise subscribers would go that nobody was told of.
            && one.presence == two.presence
            && reports(one) == reports(two)
            && fingerprint(self) == fingerprint(other)
    }
}

/// Returns a mark that differs where the same clients have not the same rights, or subscribers are
/// reported otherwise. It is the same in each process.
fn mark(options: &Channel, tokens: Option<&Tokens>) -> RightsMark {
    let Channel { publish, subscribe, token, authorize, presence, .. } = options;
    let reports = options.mercure.map(|hub| hub.subscriptions);
    let mut text =
        format!("{:?}", (publish, subscribe, token, authorize, presence, reports)).into_bytes();
    tokens.iter().for_each(|tokens| text.extend_from_slice(tokens.verifier.fingerprint()));
    let mut mark = RightsMark::default();
    mark.copy_from_slice(&digest(&SHA256, &text).as_ref()[..size_of::<RightsMark>()]);
    mark
}

/// The rights of a route on one engine.
pub struct Rights {
    shared: Arc<SharedRights>,
    authorizer: Option<Authorizer>,
    callbacks: Option<Rc<CallbackSender>>,
}

/// A client that may do what it asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Admitted {
    pub grant: Grant,
    /// Who it is, if that is known and counts.
    pub user: Option<User>,
}

impl Admitted {
    /// Returns a client of whom nothing else is known.
    fn unnamed(grant: Grant) -> Admitted {
        Admitted { grant, user: None }
    }

    /// Returns it as one that was admitted by rights with this mark.
    fn by(self, mark: RightsMark) -> Admitted {
        Admitted { grant: self.grant.by(mark), ..self }
    }
}

/// The decision about a request, as far as it needs no waiting.
enum Decision {
    Allowed(Admitted),
    Refused(Refusal),
    /// The application decides.
    Asks,
}

/// Notes the subject of a token that was verified as the user in the access log, if there is a log.
fn note_subject(claims: &Claims, exchange: &Exchange) {
    if let Some(entry) = &exchange.entry
        && let Some(sub) = claims.all.get("sub").and_then(|sub| sub.as_str())
    {
        entry.note(|record| record.user = Some(sub.into()));
    }
}

impl Rights {
    /// Creates the rights of a route on the engine of this thread.
    pub fn new(
        shared: &Arc<SharedRights>,
        groups: &BTreeMap<String, Arc<Group>>,
        config: &Config,
    ) -> Rc<Rights> {
        let rule = shared.options.authorize.as_ref();
        let authorizer = rule.and_then(|rule| {
            let group = groups.get(&rule.upstream)?;
            Some(Authorizer::new(group, rule, &config.timeouts))
        });
        let callbacks = shared.options.callbacks.as_ref().and_then(|rule| {
            let (group, key) = (groups.get(&rule.upstream)?, shared.callback_key.clone()?);
            Some(Rc::new(CallbackSender::new(group, rule, key, &config.timeouts)))
        });
        Rc::new(Rights { shared: shared.clone(), authorizer, callbacks })
    }

    /// Returns the way to the application that is told of the channels.
    pub(super) fn callback_sender(&self) -> Option<Rc<CallbackSender>> {
        self.callbacks.clone()
    }

    /// Returns where events of the server are reported.
    pub(super) fn report(&self) -> &Report {
        &self.shared.report
    }

    /// Returns the rights of a log of items. Its subscribers are those that an application admits.
    pub fn of_log(log: &Channels, report: &Report) -> Rc<Rights> {
        let options = (*log.options()).clone();
        let mark = mark(&options, None);
        let (report, tokens, callback_key) = (report.clone(), None, None);
        let (refusals, floods) = (RateLimited::new(REFUSALS), RateLimited::new(REFUSALS));
        let shared = SharedRights { options, tokens, callback_key, mark, report, refusals, floods };
        Rc::new(Rights { shared: Arc::new(shared), authorizer: None, callbacks: None })
    }

    /// Whether the same clients have the same rights.
    pub(crate) fn is_like(&self, other: &Rights) -> bool {
        self.shared.is_like(&other.shared)
    }

    /// Whether a grant was given by rights like these, perhaps by those of another server.
    pub(super) fn have_given(&self, grant: Grant) -> bool {
        grant.mark == self.shared.mark
    }

    /// Whether pages of other sites may send cookies along: there is a cookie with a token, and
    /// only sites that are named may use the channel.
    pub(super) fn takes_cookies(&self) -> bool {
        let options = &self.shared.options;
        let cookie = options.token.as_ref().and_then(|rule| rule.cookie.as_ref());
        (cookie.is_some() || self.authorizer.is_some()) && !options.origins.allow_all()
    }

    /// Whether a page that may use the channel may do so with its visitor's cookies: a page of the
    /// server itself, or of a site that is named.
    fn trusts_page<B>(&self, request: &Request<B>) -> bool {
        let is_own = matches!(cors::of_another_site(request.headers(), request.uri()), Ok(None));
        is_own || !self.shared.options.origins.allow_all()
    }

    /// Returns the rights of a subscriber that somebody else has admitted.
    pub(super) fn of_admitted(&self) -> Grant {
        Grant::unlimited(false).by(self.shared.mark)
    }

    /// Checks whether a client may publish, or may subscribe.
    ///
    /// # Errors
    ///
    /// The response that refuses it.
    pub(super) async fn admit<B>(
        &self,
        using: Use,
        name: &str,
        request: &Request<B>,
        exchange: &Exchange,
    ) -> Result<Admitted, Response<Body>> {
        let (admitted, _) = self.admit_with(using, name, request, exchange).await?;
        Ok(admitted)
    }

    /// The same, with what the application has said of the client's other use, if it was asked.
    async fn admit_with<B>(
        &self,
        using: Use,
        name: &str,
        request: &Request<B>,
        exchange: &Exchange,
    ) -> Result<(Admitted, Option<bool>), Response<Body>> {
        let refusal = match self.decide(using, name, request, exchange) {
            Decision::Allowed(admitted) => return Ok((admitted.by(self.shared.mark), None)),
            Decision::Refused(refusal) => refusal,
            Decision::Asks => match self.ask(using, name, request, exchange).await {
                Ok((admitted, may_publish)) => {
                    return Ok((admitted.by(self.shared.mark), may_publish));
                }
                Err(refusal) => refusal,
            },
        };
        Err(self.refuse(using, name, exchange, refusal))
    }

    /// Checks the handshake of a WebSocket, which may publish if its client may.
    ///
    /// # Errors
    ///
    /// The response that refuses it: the client may not subscribe, has a token that is not valid,
    /// or the application does not answer.
    pub(super) async fn admit_socket<B>(
        &self,
        name: &str,
        request: &Request<B>,
        exchange: &Exchange,
    ) -> Result<Admitted, Response<Body>> {
        let (Admitted { grant, user }, may_publish) =
            self.admit_with(Use::Subscribe, name, request, exchange).await?;
        let may = match (self.decide(Use::Publish, name, request, exchange), may_publish) {
            // The application has said so already.
            (Decision::Asks, Some(may_publish)) => {
                let grant = grant.and(Grant::unlimited(may_publish));
                return Ok(Admitted { grant, user });
            }
            (Decision::Asks, None) => {
                let asked = self.ask(Use::Publish, name, request, exchange).await;
                asked.map(|(admitted, _)| admitted)
            }
            (Decision::Allowed(admitted), _) => Ok(admitted),
            (Decision::Refused(refusal), _) => Err(refusal),
        };
        match may {
            Ok(publishes) => Ok(Admitted { grant: grant.and(publishes.grant), user }),
            Err(refusal) if refusal.is_about_this_use() => Ok(Admitted { grant, user }),
            Err(refusal) => Err(self.refuse(Use::Publish, name, exchange, refusal)),
        }
    }

    fn right(&self, using: Use) -> Option<Right> {
        match using {
            Use::Publish => self.shared.options.publish,
            Use::Subscribe => Some(self.shared.options.subscribe),
        }
    }

    fn decide<B>(
        &self,
        using: Use,
        name: &str,
        request: &Request<B>,
        exchange: &Exchange,
    ) -> Decision {
        let grant = Grant::unlimited(using == Use::Publish);
        let allowed = Decision::Allowed(Admitted::unnamed(grant));
        match self.right(using) {
            Some(Right::Anyone) => allowed,
            Some(Right::Local) if guard::is_local(request, exchange.peer()) => allowed,
            Some(Right::Local) => Decision::Refused(Refusal::NotLocal),
            Some(Right::Nobody) => Decision::Refused(Refusal::Nobody),
            Some(Right::Authorize) => Decision::Asks,
            None if exchange.is_private && guard::is_direct(request, exchange.peer()) => allowed,
            None => Decision::Refused(Refusal::NoRight),
            Some(Right::Token) => match self.check_token(using, name, request, exchange) {
                Ok(admitted) => Decision::Allowed(admitted),
                Err(refusal) => Decision::Refused(refusal),
            },
        }
    }

    fn check_token<B>(
        &self,
        using: Use,
        name: &str,
        request: &Request<B>,
        exchange: &Exchange,
    ) -> Result<Admitted, Refusal> {
        let (claims, _) = self.claims(request, source::OF_CHANNELS)?;
        if !pattern::are_named(&claims, using.name(), name) {
            return Err(Refusal::OtherChannels);
        }
        note_subject(&claims, exchange);
        let grant = Grant::until(claims.valid_until, using == Use::Publish);
        let name = claims.all.get("sub").and_then(|sub| sub.as_str());
        Ok(Admitted { grant, user: self.user(using, name, claims.all.get("info"))? })
    }

    /// Returns the user of a client, if the channel counts users and the client subscribes.
    fn user(
        &self,
        using: Use,
        name: Option<&str>,
        info: Option<&Value>,
    ) -> Result<Option<User>, Refusal> {
        match self.shared.options.presence && using == Use::Subscribe {
            true => User::new(name, info).map_err(Refusal::BadUser),
            false => Ok(None),
        }
    }

    /// Returns the claims of the token of a request, which may be in one of these parameters of the
    /// URL, and whether it was in a cookie.
    fn claims<B>(
        &self,
        request: &Request<B>,
        parameters: [&str; 2],
    ) -> Result<(Claims, bool), Refusal> {
        let Some(Tokens { rule, verifier }) = &self.shared.tokens else {
            return Err(Refusal::NoToken);
        };
        let (token, is_cookie) = match source::find(request, parameters, rule.cookie.as_deref()) {
            Found::One { token, is_cookie } => (token, is_cookie),
            Found::None => return Err(Refusal::NoToken),
            Found::Several => return Err(Refusal::SeveralTokens),
        };
        Ok((verifier.verify(&token).map_err(Refusal::BadToken)?, is_cookie))
    }

    /// Checks a client of a hub of Mercure. Which topics it may publish to, and whose private
    /// updates it may get, is for its claims to say; without claims, the right alone counts.
    ///
    /// # Errors
    ///
    /// The response that refuses it.
    pub(super) async fn admit_to_hub<B>(
        &self,
        using: Use,
        name: &str,
        request: &Request<B>,
        exchange: &Exchange,
    ) -> Result<(Grant, Option<Claims>), Response<Body>> {
        let right = self.right(using);
        let claims = match self.claims(request, source::OF_MERCURE) {
            // Whoever may publish without a token may do so with any.
            _ if using == Use::Publish && right != Some(Right::Token) => None,
            Err(Refusal::NoToken) if right != Some(Right::Token) => None,
            Ok((_, true)) if using == Use::Publish && !self.comes_from_a_page(request) => {
                return Err(self.refuse(using, name, exchange, Refusal::UnknownPage));
            }
            Ok((claims, _)) => {
                note_subject(&claims, exchange);
                Some(claims)
            }
            Err(refusal) => return Err(self.refuse(using, name, exchange, refusal)),
        };
        let grant = match right {
            Some(Right::Token) => Grant::unlimited(false),
            _ => self.admit(using, name, request, exchange).await?.grant,
        };
        let until = claims.as_ref().and_then(|claims| claims.valid_until);
        Ok((Grant::until(until, false).and(grant).by(self.shared.mark), claims))
    }

    /// Whether a request that a cookie allows comes from a page that may send it: any site can make
    /// a browser send the cookie along (the Mercure draft, section "Security Considerations"). A
    /// request whose `Origin` is another site's has been looked at before.
    fn comes_from_a_page<B>(&self, request: &Request<B>) -> bool {
        if request.headers().contains_key(ORIGIN) {
            return true;
        }
        cors::referring_site(request.headers()).is_some_and(|site| {
            cors::is_own_site(&site, request.headers(), request.uri())
                || self.shared.options.origins.allow(&site)
        })
    }

    /// Refuses a client of a hub that its token does not allow a topic.
    pub(super) fn refuse_topic(
        &self,
        using: Use,
        topic: &str,
        name: &str,
        exchange: &Exchange,
    ) -> Response<Body> {
        self.refuse(using, name, exchange, Refusal::OtherTopic(topic.to_owned()))
    }

    /// Refuses a client of a hub that needs a token.
    pub(super) fn refuse_without_token(&self, name: &str, exchange: &Exchange) -> Response<Body> {
        self.refuse(Use::Subscribe, name, exchange, Refusal::NoToken)
    }

    async fn ask<B>(
        &self,
        using: Use,
        name: &str,
        request: &Request<B>,
        exchange: &Exchange,
    ) -> Result<(Admitted, Option<bool>), Refusal> {
        let Some(authorizer) = &self.authorizer else { return Err(Refusal::NoAnswer) };
        // Rare and large: the futures of other requests have no room for it.
        let asked =
            Box::pin(authorizer.ask(using, name, request, self.trusts_page(request), exchange));
        let Verdict { user, info, publish, expires } = asked.await?;
        if let (Some(entry), Some(user)) = (&exchange.entry, &user) {
            entry.note(|record| record.user = Some(user.as_str().into()));
        }
        let grant = Grant::until(expires, using == Use::Publish);
        let user = self.user(using, user.as_deref(), info.as_ref())?;
        Ok((Admitted { grant, user }, publish))
    }

    /// Answers a request that is refused, and reports it.
    fn refuse(
        &self,
        using: Use,
        name: &str,
        exchange: &Exchange,
        refusal: Refusal,
    ) -> Response<Body> {
        let reason = refusal.reason(using, name);
        let status = refusal.status();
        if let Some(left_out) = self.shared.refusals.admit() {
            let client = exchange.peer().client.map(|client| client.ip().to_string());
            let others = others(left_out);
            let whom = client.as_deref().unwrap_or("a local client");
            let message = format!("refused {whom}, {status}: {reason}{others}");
            let event = Event::new(Level::Warning, "channel-refused", message);
            let event = event.with("channel", name).with("use", using.name());
            let event = event.with("client", client).with("why", reason.as_str());
            let event = event.with("status", status.as_u16()).with("left_out", left_out);
            (self.shared.report)(&event);
        }
        refusal.response(&reason)
    }

    /// Reports a client that publishes faster than it may.
    pub(super) fn report_too_fast(&self, name: &str, client: Option<IpAddr>, rate: Rate) {
        let Some(left_out) = self.shared.floods.admit() else { return };
        let words = rate.in_words("message");
        let client = client.map(|client| client.to_string());
        let whom = client.as_deref().unwrap_or("a local client");
        let others = others(left_out);
        let message = format!(
            "{whom} publishes to {name} faster than it may, {words} (publish_rate){others}"
        );
        let event = Event::new(Level::Warning, "channel-too-fast", message);
        let event = event.with("channel", name).with("client", client);
        (self.shared.report)(&event.with("left_out", left_out));
    }
}

superpoll::debug_fields!(Rights);
