//! Who may do what: rules as Kafka's clients know them, and the one function that judges by them.
//!
//! Pure. [`Rules::allows`] answers for one principal, operation and resource:
//! * a rule that denies wins over any that allows;
//! * what no rule allows is denied;
//! * to be allowed to read, write, delete or alter something is to be allowed to describe it; to alter settings, to describe them.
//!   A denial implies nothing else.
//!
//! Rules are kept by kind of resource and name, so that a question costs a few look-ups and not a walk over all of them; the tests
//! ask every question of a model that does walk.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The name that stands for all of a kind, all principals, or all addresses.
pub const ANY: &str = "*";
/// How principals of users begin; there are no others.
const USER: &str = "User:";

/// Kinds of things that rules are about, by Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i8)]
pub enum Kind {
    /// Topics, by name.
    Topic = 2,
    /// Groups of consumers, by name.
    Group = 3,
    /// The server itself; its name is `kafka-cluster`.
    Cluster = 4,
    /// Transactional ids.
    TransactionalId = 5,
}

/// All kinds.
pub const KINDS: [Kind; 4] = [Kind::Topic, Kind::Group, Kind::Cluster, Kind::TransactionalId];
/// The only name of a thing of kind [`Kind::Cluster`].
pub const CLUSTER: &str = "kafka-cluster";

/// What can be done, by Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i8)]
pub enum Operation {
    /// Everything; in rules alone.
    All = 2,
    /// Reading records, being a member of a group.
    Read = 3,
    /// Writing records, using a transactional id.
    Write = 4,
    /// Creating topics.
    Create = 5,
    /// Deleting.
    Delete = 6,
    /// Changing what isn't a setting.
    Alter = 7,
    /// Seeing that it is there, and how.
    Describe = 8,
    /// What servers do among themselves.
    ClusterAction = 9,
    /// Seeing settings.
    DescribeConfigs = 10,
    /// Changing settings.
    AlterConfigs = 11,
    /// Getting a producer id.
    IdempotentWrite = 12,
}

/// All operations.
pub const OPERATIONS: [Operation; 11] = {
    use Operation::*;
    [All, Read, Write, Create, Delete, Alter, Describe, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite]
};

/// How a rule names things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i8)]
pub enum Pattern {
    /// The thing of this name; [`ANY`] for all.
    Literal = 3,
    /// Things whose names begin so.
    Prefixed = 4,
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i8)]
pub enum Permission {
    /// No.
    Deny = 2,
    /// Yes.
    Allow = 3,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acl {
    /// What kind of thing it is about.
    pub kind: Kind,
    /// How it names it.
    pub pattern: Pattern,
    /// The name, or its beginning.
    pub name: String,
    /// Whom it is about: `User:NAME`, or `User:*` for all.
    pub principal: String,
    /// From where: an IP address, or [`ANY`].
    pub host: String,
    /// Doing what.
    pub operation: Operation,
    /// Whether that may be done.
    pub permission: Permission,
}

impl Acl {
    /// Whether it is one that can apply at all; what is wrong with it if not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let user = self.principal.strip_prefix(USER);
        match self {
            _ if user.is_none_or(str::is_empty) => Err("a principal is User:NAME or User:*"),
            _ if self.name.is_empty() => Err("a rule names a resource"),
            _ if self.principal.len() > 300 || self.name.len() > 1000 || self.host.len() > 255 => {
                Err("a name is too long")
            }
            _ if self.kind == Kind::Cluster && (self.name != CLUSTER || self.pattern != Pattern::Literal) => {
                Err("the only cluster is called kafka-cluster")
            }
            _ if self.host != ANY && self.host.parse::<std::net::IpAddr>().is_err() => {
                Err("a host is * or an IP address")
            }
            _ if !self.kind.knows(self.operation) => Err("there is no such operation on such a resource"),
            _ => Ok(()),
        }
    }

    fn is_about(&self, who: &Who<'_>, operation: Operation) -> bool {
        let user = self.principal.strip_prefix(USER).unwrap_or_default();
        (user == ANY || user == who.user)
            && (self.host == ANY || self.host == who.address)
            && match self.permission {
                Permission::Deny => self.operation == Operation::All || self.operation == operation,
                Permission::Allow => self.operation.covers(operation),
            }
    }
}

impl Kind {
    /// Whether a thing of this kind can be asked to do that.
    pub fn knows(self, operation: Operation) -> bool {
        use Operation::*;
        match self {
            _ if operation == All => true,
            Kind::Topic => ![ClusterAction, IdempotentWrite].contains(&operation),
            Kind::Group => [Read, Describe, Delete].contains(&operation),
            Kind::Cluster => ![Read, Write, Delete].contains(&operation),
            Kind::TransactionalId => [Describe, Write].contains(&operation),
        }
    }
}

impl Operation {
    /// Whether a rule that allows this allows `asked`.
    fn covers(self, asked: Operation) -> bool {
        use Operation::*;
        self == All
            || self == asked
            || match asked {
                Describe => [Read, Write, Delete, Alter].contains(&self),
                DescribeConfigs => self == AlterConfigs,
                _ => false,
            }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// A user's name, without `User:`.
    pub user: &'a str,
    /// The address it comes from.
    pub address: &'a str,
}

/// All rules, in an order for looking up.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    all: BTreeSet<Acl>,
    kinds: BTreeMap<Kind, OfKind>,
}

#[derive(Clone, Debug, Default)]
struct OfKind {
    literal: HashMap<String, Vec<Acl>>,
    prefixed: HashMap<String, Vec<Acl>>,
    /// How long the prefixes are that there are.
    lengths: BTreeSet<usize>,
}

impl OfKind {
    /// The rules that are about a thing of this name.
    fn about<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Acl> {
        let exact = [name, ANY].into_iter().filter_map(|name| self.literal.get(name));
        let begins = self.lengths.iter().filter_map(|length| self.prefixed.get(name.get(..*length)?));
        exact.chain(begins).flatten()
    }
}

impl FromIterator<Acl> for Rules {
    fn from_iter<T: IntoIterator<Item = Acl>>(acls: T) -> Rules {
        let mut rules = Rules { all: acls.into_iter().collect(), kinds: BTreeMap::new() };
        for acl in &rules.all {
            let kind = rules.kinds.entry(acl.kind).or_default();
            let by_name = match acl.pattern {
                Pattern::Literal => &mut kind.literal,
                Pattern::Prefixed => {
                    kind.lengths.insert(acl.name.len());
                    &mut kind.prefixed
                }
            };
            by_name.entry(acl.name.clone()).or_default().push(acl.clone());
        }
        rules
    }
}

impl Rules {
    /// All of them.
    pub fn all(&self) -> &BTreeSet<Acl> {
        &self.all
    }

    /// Whether `who` may do `operation` to the thing of this kind and name.
    pub fn allows(&self, who: &Who<'_>, operation: Operation, kind: Kind, name: &str) -> bool {
        let Some(kind) = self.kinds.get(&kind) else { return false };
        let mut allowed = false;
        for acl in kind.about(name).filter(|acl| acl.is_about(who, operation)) {
            match acl.permission {
                Permission::Deny => return false,
                Permission::Allow => allowed = true,
            }
        }
        allowed
    }

    /// Whether there could be a thing of this kind to which `who` may do that (KIP-679): some rule allows it for names that no
    /// rule denies altogether.
    pub fn allows_somewhere(&self, who: &Who<'_>, operation: Operation, kind: Kind) -> bool {
        let Some(rules) = self.kinds.get(&kind) else { return false };
        let about = |acl: &&Acl| acl.is_about(who, operation);
        let denied = |acl: &Acl| {
            let denies = |found: Option<&Vec<Acl>>| {
                found.is_some_and(|acls| acls.iter().filter(about).any(|acl| acl.permission == Permission::Deny))
            };
            let whole = denies(rules.literal.get(ANY));
            let literally = acl.pattern == Pattern::Literal && denies(rules.literal.get(&acl.name));
            let mut prefixes = rules.lengths.iter().filter_map(|length| acl.name.get(..*length));
            // A literal * is all names, and no prefix denies those.
            let every = acl.pattern == Pattern::Literal && acl.name == ANY;
            whole || literally || (!every && prefixes.any(|prefix| denies(rules.prefixed.get(prefix))))
        };
        let all = rules.literal.values().chain(rules.prefixed.values()).flatten();
        all.filter(about).any(|acl| acl.permission == Permission::Allow && !denied(acl))
    }
}

macro_rules! numbered {
    ($type:ty, $all:expr) => {
        impl TryFrom<i8> for $type {
            type Error = ();

            fn try_from(number: i8) -> Result<Self, ()> {
                $all.into_iter().find(|known| *known as i8 == number).ok_or(())
            }
        }
    };
}

numbered!(Kind, KINDS);
numbered!(Operation, OPERATIONS);
numbered!(Pattern, [Pattern::Literal, Pattern::Prefixed]);
numbered!(Permission, [Permission::Deny, Permission::Allow]);

#[cfg(test)]
mod tests {
    use super::*;

    /// Kafka's documentation in the plainest way: walk over all rules.
    fn naive(acls: &[Acl], who: &Who<'_>, operation: Operation, kind: Kind, name: &str) -> bool {
        let about = |acl: &&Acl| {
            acl.kind == kind
                && (acl.principal == "User:*" || acl.principal == format!("User:{}", who.user))
                && (acl.host == "*" || acl.host == who.address)
                && match acl.pattern {
                    Pattern::Literal => acl.name == "*" || acl.name == name,
                    Pattern::Prefixed => name.starts_with(&acl.name),
                }
        };
        let implied: &[Operation] = match operation {
            Operation::Describe => {
                &[Operation::Describe, Operation::Read, Operation::Write, Operation::Delete, Operation::Alter]
            }
            Operation::DescribeConfigs => &[Operation::DescribeConfigs, Operation::AlterConfigs],
            _ => std::slice::from_ref(OPERATIONS.iter().find(|known| **known == operation).unwrap()),
        };
        let denied = acls.iter().filter(about).any(|acl| {
            acl.permission == Permission::Deny && (acl.operation == Operation::All || acl.operation == operation)
        });
        let allowed = acls.iter().filter(about).any(|acl| {
            acl.permission == Permission::Allow && (acl.operation == Operation::All || implied.contains(&acl.operation))
        });
        allowed && !denied
    }

    /// Every rule that there can be over few names, users and addresses.
    fn every_acl() -> Vec<Acl> {
        let mut all = Vec::new();
        for (pattern, name) in [
            (Pattern::Literal, "ab"),
            (Pattern::Literal, "*"),
            (Pattern::Literal, "b"),
            (Pattern::Prefixed, "a"),
            (Pattern::Prefixed, "ab"),
            (Pattern::Prefixed, "*"),
        ] {
            for principal in ["User:alice", "User:*"] {
                for host in ["*", "10.0.0.1"] {
                    for operation in [Operation::All, Operation::Read, Operation::Describe, Operation::AlterConfigs] {
                        for permission in [Permission::Deny, Permission::Allow] {
                            let (name, principal, host) = (name.to_string(), principal.to_string(), host.to_string());
                            all.push(Acl { kind: Kind::Topic, pattern, name, principal, host, operation, permission });
                        }
                    }
                }
            }
        }
        all
    }

    fn ask_everything(acls: &[Acl]) -> Result<(), String> {
        let rules: Rules = acls.iter().cloned().collect();
        for user in ["alice", "bob"] {
            for address in ["10.0.0.1", "10.0.0.2"] {
                let who = Who { user, address };
                for operation in [Operation::Read, Operation::Write, Operation::Describe, Operation::DescribeConfigs] {
                    for name in ["a", "ab", "abc", "b", "c", "*"] {
                        for kind in [Kind::Topic, Kind::Group] {
                            let (is, should) =
                                (rules.allows(&who, operation, kind, name), naive(acls, &who, operation, kind, name));
                            if is != should {
                                return Err(format!(
                                    "{who:?} {operation:?} {kind:?} {name}: {is}, not {should}, by {acls:?}"
                                ));
                            }
                        }
                    }
                    // Whoever may write to something that can be named may write somewhere.
                    let named = ["a", "ab", "abc", "b", "c", "zzz"];
                    let somewhere = rules.allows_somewhere(&who, operation, Kind::Topic);
                    if named.iter().any(|name| naive(acls, &who, operation, Kind::Topic, name)) && !somewhere {
                        return Err(format!("{who:?} {operation:?} is allowed nowhere, by {acls:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn every_pair_of_rules_is_judged_as_the_naive_model_judges_it() {
        let every = every_acl();
        ask_everything(&[]).unwrap();
        for (n, first) in every.iter().enumerate() {
            for second in &every[n..] {
                ask_everything(&[first.clone(), second.clone()]).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }

    #[test]
    fn without_rules_nobody_may_do_anything_and_a_denial_wins() {
        let who = Who { user: "alice", address: "::1" };
        let nothing = Rules::default();
        for kind in KINDS {
            for operation in OPERATIONS {
                assert!(
                    !nothing.allows(&who, operation, kind, "x") && !nothing.allows_somewhere(&who, operation, kind)
                );
            }
        }
        let rule = |permission, pattern, name: &str| Acl {
            kind: Kind::Topic,
            pattern,
            name: name.to_string(),
            principal: "User:alice".to_string(),
            host: ANY.to_string(),
            operation: Operation::Write,
            permission,
        };
        let both: Rules =
            [rule(Permission::Allow, Pattern::Literal, "orders"), rule(Permission::Deny, Pattern::Prefixed, "ord")]
                .into_iter()
                .collect();
        assert!(!both.allows(&who, Operation::Write, Kind::Topic, "orders"));
        assert!(!both.allows_somewhere(&who, Operation::Write, Kind::Topic), "nothing is left");
        let all_but: Rules =
            [rule(Permission::Allow, Pattern::Literal, ANY), rule(Permission::Deny, Pattern::Prefixed, "ord")]
                .into_iter()
                .collect();
        assert!(all_but.allows_somewhere(&who, Operation::Write, Kind::Topic));
    }

    #[test]
    fn rules_that_could_never_apply_are_refused() {
        let good = Acl {
            kind: Kind::Topic,
            pattern: Pattern::Prefixed,
            name: "a".to_string(),
            principal: "User:alice".to_string(),
            host: "10.0.0.1".to_string(),
            operation: Operation::Read,
            permission: Permission::Allow,
        };
        assert_eq!(good.check(), Ok(()));
        let cluster = Acl { kind: Kind::Cluster, operation: Operation::Create, ..good.clone() };
        let bad = [
            Acl { principal: "alice".to_string(), ..good.clone() },
            Acl { principal: "User:".to_string(), ..good.clone() },
            Acl { name: String::new(), ..good.clone() },
            Acl { host: "example.org".to_string(), ..good.clone() },
            Acl { operation: Operation::ClusterAction, ..good.clone() },
            Acl { kind: Kind::Group, operation: Operation::Write, ..good.clone() },
            cluster.clone(),
        ];
        for bad in bad {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert_eq!(Acl { name: CLUSTER.to_string(), pattern: Pattern::Literal, ..cluster }.check(), Ok(()));
    }

    #[test]
    fn numbers_are_kafkas() {
        assert_eq!(Operation::try_from(12), Ok(Operation::IdempotentWrite));
        assert_eq!((Kind::try_from(5), Kind::try_from(6)), (Ok(Kind::TransactionalId), Err(())));
        assert_eq!((Pattern::try_from(4), Pattern::try_from(2)), (Ok(Pattern::Prefixed), Err(())));
        assert_eq!(Permission::try_from(3), Ok(Permission::Allow));
    }
}
