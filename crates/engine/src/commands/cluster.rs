//! What there is of a cluster: the answer that there is none.

use crate::command::{acl, flag, CmdResult, Group, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("asking", 1, flag::FAST, Touch::Nothing, no_cluster)
        .acl(acl::CONNECTION)
        .doc(Group::Cluster, "3.0.0", "Sent by cluster clients after an -ASK redirect", "O(1)"),
    Command::new("readonly", 1, flag::LOADING | flag::STALE | flag::FAST, Touch::Nothing, no_cluster)
        .acl(acl::CONNECTION)
        .doc(Group::Cluster, "3.0.0", "Enables read queries for a connection to a cluster replica node", "O(1)"),
    Command::new("readwrite", 1, flag::LOADING | flag::STALE | flag::FAST, Touch::Nothing, no_cluster)
        .acl(acl::CONNECTION)
        .doc(Group::Cluster, "3.0.0", "Disables read queries for a connection to a cluster replica node", "O(1)"),
    Command::container("cluster", -2, 0)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "A container for cluster commands", "Depends on subcommand."),
    Command::new("cluster|addslots", -3, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Assign new hash slots to receiving node", "O(N) where N is the total number of hash slot arguments"),
    Command::new("cluster|addslotsrange", -4, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "7.0.0", "Assign new hash slots to receiving node", "O(N) where N is the total number of the slots between the start slot and end slot arguments."),
    Command::new("cluster|bumpepoch", 2, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Advance the cluster config epoch", "O(1)")
        .tips(&["nondeterministic_output"]),
    Command::new("cluster|count-failure-reports", 3, flag::ADMIN | flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Return the number of failure reports active for a given node", "O(N) where N is the number of failure reports")
        .tips(&["nondeterministic_output"]),
    Command::new("cluster|countkeysinslot", 3, flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Return the number of local keys in the specified hash slot", "O(1)"),
    Command::new("cluster|delslots", -3, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Set hash slots as unbound in receiving node", "O(N) where N is the total number of hash slot arguments"),
    Command::new("cluster|delslotsrange", -4, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "7.0.0", "Set hash slots as unbound in receiving node", "O(N) where N is the total number of the slots between the start slot and end slot arguments."),
    Command::new("cluster|failover", -2, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Forces a replica to perform a manual failover of its master.", "O(1)"),
    Command::new("cluster|flushslots", 2, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Delete a node's own slots information", "O(1)"),
    Command::new("cluster|forget", 3, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Remove a node from the nodes table", "O(1)"),
    Command::new("cluster|getkeysinslot", 4, flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Return local key names in the specified hash slot", "O(log(N)) where N is the number of requested keys")
        .tips(&["nondeterministic_output"]),
    Command::new("cluster|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("cluster|info", 2, flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Provides info about Redis Cluster node state", "O(1)")
        .tips(&["nondeterministic_output"]),
    Command::new("cluster|keyslot", 3, flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Returns the hash slot of the specified key", "O(N) where N is the number of bytes in the key"),
    Command::new("cluster|links", 2, flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "7.0.0", "Returns a list of all TCP links to and from peer nodes in cluster", "O(N) where N is the total number of Cluster nodes")
        .tips(&["nondeterministic_output"]),
    Command::new("cluster|meet", -4, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Force a node cluster to handshake with another node", "O(1)"),
    Command::new("cluster|myid", 2, flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Return the node id", "O(1)"),
    Command::new("cluster|nodes", 2, flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Get Cluster config for the node", "O(N) where N is the total number of Cluster nodes")
        .tips(&["nondeterministic_output"]),
    Command::new("cluster|replicas", 3, flag::ADMIN | flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "5.0.0", "List replica nodes of the specified master node", "O(1)")
        .tips(&["nondeterministic_output"]),
    Command::new("cluster|replicate", 3, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Reconfigure a node as a replica of the specified master node", "O(1)"),
    Command::new("cluster|reset", -2, flag::ADMIN | flag::NOSCRIPT | flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Reset a Redis Cluster node", "O(N) where N is the number of known nodes. The command may execute a FLUSHALL as a side effect."),
    Command::new("cluster|saveconfig", 2, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Forces the node to save cluster state on disk", "O(1)"),
    Command::new("cluster|set-config-epoch", 3, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Set the configuration epoch in a new node", "O(1)"),
    Command::new("cluster|setslot", -4, flag::ADMIN | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Bind a hash slot to a specific node", "O(1)"),
    Command::new("cluster|shards", 2, flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "7.0.0", "Get array of cluster slots to node mappings", "O(N) where N is the total number of cluster nodes")
        .tips(&["nondeterministic_output"]),
    Command::new("cluster|slaves", 3, flag::ADMIN | flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "List replica nodes of the specified master node", "O(1)")
        .tips(&["nondeterministic_output"]),
    Command::new("cluster|slots", 2, flag::STALE, Touch::Nothing, no_cluster)
        .acl(0)
        .doc(Group::Cluster, "3.0.0", "Get array of Cluster slot to node mappings", "O(N) where N is the total number of Cluster nodes")
        .tips(&["nondeterministic_output"]),
];

fn no_cluster(_: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    Err("ERR This instance has cluster support disabled".into())
}
