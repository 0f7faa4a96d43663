//! One connection's way to being known (KIP-43, KIP-84, KIP-152): a pure machine, given messages, a nonce and the book.
//!
//! ```text
//!  Fresh --SaslHandshake--> Chosen --first message--> Challenged --last message--> Known
//!                              `-------- anything wrong -------------'-----------> Failed: the connection is closed
//! ```
//!
//! After a `SaslHandshake` of version 0 messages come as frames without a header, until the exchange has ended; after version 1, in
//! `SaslAuthenticate`.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use super::book::Book;
use super::credential;
use super::scram::{ClientFirst, Credential, Exchange, Mechanism, ScramError};

/// What is asked for before a connection is known.
const OPEN_TO_ALL: [ApiKey; 3] = [ApiKey::ApiVersions, ApiKey::SaslHandshake, ApiKey::SaslAuthenticate];

/// One connection's state.
#[derive(Debug)]
pub(crate) struct Session {
    state: State,
    /// Messages come without a header.
    bare: bool,
}

#[derive(Debug)]
enum State {
    /// Nobody asks here.
    NotAsked,
    Fresh,
    Chosen(Mechanism),
    Challenged {
        mechanism: Mechanism,
        user: String,
        exchange: Box<Exchange>,
    },
    Known {
        mechanism: Mechanism,
        user: String,
        /// What it was proved by.
        credential: Credential,
    },
    Failed,
}

/// What a message to a session came to.
#[derive(Debug)]
pub(crate) enum Said {
    /// The exchange goes on with this answer.
    Next(Vec<u8>),
    /// The user is known; this is the last answer.
    Done(Vec<u8>),
    /// It isn't who it says, or no message of an exchange. The reason is for the log alone.
    Wrong {
        /// By which means.
        mechanism: Mechanism,
        /// Who it said it was.
        user: String,
        /// Why not.
        why: ScramError,
    },
    /// It isn't the time for it.
    OutOfTurn,
}

impl Session {
    /// Of a new connection; `asked` says whether it must prove who it is.
    pub(crate) fn new(asked: bool) -> Session {
        Session { state: if asked { State::Fresh } else { State::NotAsked }, bare: false }
    }

    /// Whether a request of this kind is answered now.
    pub(crate) fn admits(&self, api: ApiKey) -> bool {
        match self.state {
            State::NotAsked | State::Known { .. } => true,
            State::Failed => false,
            _ => OPEN_TO_ALL.contains(&api),
        }
    }

    /// Whether the next frame is a message of an exchange, without a header.
    pub(crate) fn expects_bare(&self) -> bool {
        self.bare && matches!(self.state, State::Chosen(_) | State::Challenged { .. })
    }

    /// Whether nothing is left to be proved.
    pub(crate) fn is_through(&self) -> bool {
        matches!(self.state, State::NotAsked | State::Known { .. })
    }

    /// Whether the connection must be closed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// Who it is, if it has proved it.
    pub(crate) fn user(&self) -> Option<&str> {
        match &self.state {
            State::Known { user, .. } => Some(user),
            _ => None,
        }
    }

    /// Whether what was proved would be proved today: its user is there, with the same password.
    pub(crate) fn still_holds(&self, book: &Book) -> bool {
        match &self.state {
            State::Known { mechanism, user, credential } => {
                book.users.get(user).and_then(|credentials| credentials.get(mechanism)) == Some(credential)
            }
            _ => true,
        }
    }

    /// `SaslHandshake`: the client says how it will prove who it is.
    pub(crate) fn choose(&mut self, mechanism: &str, bare: bool) -> Result<(), ResponseError> {
        if !matches!(self.state, State::Fresh) {
            if !self.is_through() {
                self.state = State::Failed;
            }
            return Err(ResponseError::IllegalSaslState);
        }
        // One that doesn't know what is served is told, and may choose again.
        let mechanism = Mechanism::named(mechanism).ok_or(ResponseError::UnsupportedSaslMechanism)?;
        (self.state, self.bare) = (State::Chosen(mechanism), bare);
        Ok(())
    }

    /// A message of the exchange. `nonce` must be new each time.
    pub(crate) fn take(&mut self, message: &[u8], nonce: &str, book: &Book) -> Said {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Chosen(mechanism) => match ClientFirst::read(message) {
                Err(why) => Said::Wrong { mechanism, user: String::new(), why },
                Ok(first) => {
                    let user = first.user.clone();
                    let (exchange, answer) =
                        Exchange::begin(mechanism, first, nonce, credential(book, mechanism, &user));
                    self.state = State::Challenged { mechanism, user, exchange: Box::new(exchange) };
                    Said::Next(answer)
                }
            },
            State::Challenged { mechanism, user, exchange } => {
                let credential = exchange.credential().clone();
                match exchange.finish(message) {
                    Err(why) => Said::Wrong { mechanism, user, why },
                    Ok(answer) => {
                        self.state = State::Known { mechanism, user, credential };
                        Said::Done(answer)
                    }
                }
            }
            other @ (State::NotAsked | State::Known { .. }) => {
                self.state = other;
                Said::OutOfTurn
            }
            State::Fresh | State::Failed => Said::OutOfTurn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::book::tests::some_with;
    use crate::access::scram::client;

    fn some() -> Book {
        some_with(1)
    }

    fn exchange(session: &mut Session, mechanism: Mechanism, user: &str, password: &str) -> Said {
        let first = client::first(user, "abc");
        let Said::Next(answer) = session.take(&first, "nonce", &some()) else { panic!("a challenge") };
        let (last, signature) = client::last(mechanism, &first, &answer, password);
        let said = session.take(&last, "another", &some());
        if let Said::Done(proof) = &said {
            assert_eq!(proof, &signature);
        }
        said
    }

    #[test]
    fn a_user_is_known_by_the_right_password_alone() {
        for (user, password, right) in
            [("alice", "alice", true), ("alice", "alise", false), ("mallory", "mallory", false)]
        {
            let mut session = Session::new(true);
            session.choose("SCRAM-SHA-512", false).expect("served");
            let said = exchange(&mut session, Mechanism::Sha512, user, password);
            assert_eq!((matches!(said, Said::Done(_)), session.user()), (right, right.then_some(user)));
            assert_eq!((session.is_through(), session.has_failed()), (right, !right));
            if !right {
                assert!(
                    matches!(said, Said::Wrong { why: ScramError::WrongPassword, user: named, .. } if named == user)
                );
            }
        }
    }

    #[test]
    fn what_was_proved_holds_while_the_user_has_that_password() {
        let mut session = Session::new(true);
        assert!(session.still_holds(&some()), "nothing was proved yet");
        session.choose("SCRAM-SHA-512", false).expect("served");
        exchange(&mut session, Mechanism::Sha512, "alice", "alice");
        assert!(session.still_holds(&some()));
        let mut changed = some();
        let credentials = changed.users.get_mut("alice").expect("she is there");
        let other = Credential::of_password(Mechanism::Sha512, b"another", b"salt".to_vec(), 4096);
        credentials.insert(Mechanism::Sha512, other);
        assert!(!session.still_holds(&changed), "another password");
        changed.users.remove("alice");
        assert!(!session.still_holds(&changed), "removed");
        assert!(Session::new(false).still_holds(&changed), "where nobody asks");
    }

    /// All sequences of three steps of whatever kind: only choose, first, last leads to a known user, and before that nothing but
    /// the three open APIs is answered.
    #[test]
    fn no_other_way_leads_to_being_known() {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Do {
            Choose,
            ChooseUnknown,
            First,
            Last,
            Noise,
        }
        let all = [Do::Choose, Do::ChooseUnknown, Do::First, Do::Last, Do::Noise];
        for a in all {
            for b in all {
                for c in all {
                    for d in all {
                        let mut session = Session::new(true);
                        let first = client::first("alice", "abc");
                        let mut answer = None;
                        for step in [a, b, c, d] {
                            assert!(session.is_through() || !session.admits(ApiKey::Metadata));
                            match step {
                                Do::Choose => drop(session.choose("SCRAM-SHA-256", true)),
                                Do::ChooseUnknown => drop(session.choose("PLAIN", true)),
                                Do::Noise => drop(session.take(b"noise", "x", &some())),
                                Do::First => {
                                    if let Said::Next(said) = session.take(&first, "x", &some()) {
                                        answer = Some(said);
                                    }
                                }
                                Do::Last => {
                                    let last = answer.as_ref().map_or(b"c=biws,r=abcx,p=".to_vec(), |answer| {
                                        client::last(Mechanism::Sha256, &first, answer, "alice").0
                                    });
                                    session.take(&last, "x", &some());
                                }
                            }
                        }
                        let straight = |steps: &[Do]| steps == [Do::Choose, Do::First, Do::Last];
                        // An unknown mechanism costs a turn and nothing else; once known, always known.
                        let steps: Vec<Do> =
                            [a, b, c, d].into_iter().skip_while(|step| *step == Do::ChooseUnknown).collect();
                        let known = steps.len() >= 3 && straight(&steps[..3]);
                        assert_eq!(session.user().is_some(), known, "{:?}", [a, b, c, d]);
                    }
                }
            }
        }
    }

    #[test]
    fn where_nobody_asks_everything_is_answered_and_nobody_is_named() {
        let mut session = Session::new(false);
        assert!(session.admits(ApiKey::Produce) && session.is_through());
        assert_eq!(session.choose("SCRAM-SHA-256", false), Err(ResponseError::IllegalSaslState));
        assert!(matches!(session.take(b"x", "x", &some()), Said::OutOfTurn));
        assert!(session.admits(ApiKey::Produce) && session.user().is_none());
    }
}
