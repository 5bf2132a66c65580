//! Listeners, pools and members, and how their changes affect the tree.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::error::ApiError;
use super::super::model::{
    Application, HealthMonitor, Listener, ListenerProtocol, LoadBalancer, Member, MonitorProtocol, Pool,
    PoolProtocol, ProvisioningStatus, Traffic,
};
use super::super::quota::{self, Quotas};
use super::super::requests::{
    CreateListener, CreatePool, MembersAnswer, SetMembers, UpdateListener, UpdateMembers, UpdatePool,
};
use super::super::table::Write;
use super::{LoadBalancers, Order, Serials};

const WEIGHT_MAX: u16 = 256;

impl LoadBalancers {
    pub(in super::super) fn create_listener(
        &mut self,
        balancer: &str,
        request: CreateListener,
        order: &Order<'_>,
    ) -> Result<Listener, ApiError> {
        let serial = self.serial(balancer)?;
        self.change(serial, order, |balancer, serials| {
            add_listener(balancer, request, serials, &order.settings.quotas)
        })
    }

    pub(in super::super) fn update_listener(
        &mut self,
        id: &str,
        request: UpdateListener,
        order: &Order<'_>,
    ) -> Result<Listener, ApiError> {
        let serial =
            self.owner("listener", id, |balancer| balancer.listeners.iter().any(|it| it.id == id))?;
        self.change(serial, order, |balancer, _| change_listener(balancer, id, request))
    }

    pub(in super::super) fn delete_listener(
        &mut self,
        id: &str,
        order: &Order<'_>,
    ) -> Result<Listener, ApiError> {
        let serial =
            self.owner("listener", id, |balancer| balancer.listeners.iter().any(|it| it.id == id))?;
        self.change(serial, order, |balancer, _| {
            let listener = listener(balancer, id)?;
            listener.status = ProvisioningStatus::PendingDelete;
            Ok(listener.clone())
        })
    }

    pub(in super::super) fn create_pool(
        &mut self,
        balancer: &str,
        request: CreatePool,
        order: &Order<'_>,
    ) -> Result<Pool, ApiError> {
        let serial = self.serial(balancer)?;
        self.change(serial, order, |balancer, serials| {
            add_pool(balancer, request, serials, &order.settings.quotas)
        })
    }

    pub(in super::super) fn update_pool(
        &mut self,
        id: &str,
        request: UpdatePool,
        order: &Order<'_>,
    ) -> Result<Pool, ApiError> {
        self.change_pool(id, order, |pool| {
            if let Some(name) = request.name {
                pool.name = name;
            }
            if let Some(algorithm) = request.algorithm {
                pool.algorithm = algorithm;
            }
            request.persistence.apply(&mut pool.persistence);
            request.health_monitor.apply(&mut pool.health_monitor);
            check_monitor(pool.health_monitor.as_ref())?;
            Ok(pool.clone())
        })
    }

    pub(in super::super) fn delete_pool(&mut self, id: &str, order: &Order<'_>) -> Result<Pool, ApiError> {
        let serial = self.owner("pool", id, |balancer| balancer.pools.iter().any(|it| it.id == id))?;
        self.change(serial, order, |balancer, _| {
            let user = balancer.listeners.iter().find(|listener| listener.pool_id.as_deref() == Some(id));
            if let Some(listener) = user {
                let message =
                    format!("pool {id} is in use by listener {}: delete the listener first", listener.id);
                return Err(ApiError::conflict("in_use", message));
            }
            let pool = pool(balancer, id)?;
            pool.status = ProvisioningStatus::PendingDelete;
            Ok(pool.clone())
        })
    }

    pub(in super::super) fn set_members(
        &mut self,
        pool: &str,
        request: SetMembers,
        order: &Order<'_>,
    ) -> Result<MembersAnswer, ApiError> {
        check_members("members", &request.members)?;
        let limit = order.settings.quotas.members_per_pool;
        quota::check("members_per_pool", limit, 0, request.members.len())?;
        self.change_pool(pool, order, |pool| {
            pool.members = request.members;
            Ok(members_answer(pool))
        })
    }

    pub(in super::super) fn update_members(
        &mut self,
        pool: &str,
        request: UpdateMembers,
        order: &Order<'_>,
    ) -> Result<MembersAnswer, ApiError> {
        check_members("add", &request.add)?;
        let limit = order.settings.quotas.members_per_pool;
        self.change_pool(pool, order, |pool| {
            let mut leaving: BTreeSet<_> = request.remove.iter().map(|key| (key.address, key.port)).collect();
            leaving.extend(request.add.iter().map(Member::key));
            pool.members.retain(|member| !leaving.contains(&member.key()));
            quota::check("members_per_pool", limit, pool.members.len(), request.add.len())?;
            pool.members.extend(request.add);
            Ok(members_answer(pool))
        })
    }

    fn change_pool<R>(
        &mut self,
        id: &str,
        order: &Order<'_>,
        change: impl FnOnce(&mut Pool) -> Result<R, ApiError>,
    ) -> Result<R, ApiError> {
        let serial = self.owner("pool", id, |balancer| balancer.pools.iter().any(|it| it.id == id))?;
        self.change(serial, order, |balancer, _| {
            let pool = pool(balancer, id)?;
            pool.status = ProvisioningStatus::PendingUpdate;
            change(pool)
        })
    }

    /// Simulates a failure in the cloud: one listener fails, and the other listeners keep serving.
    pub(in super::super) fn force_listener_status(
        &mut self,
        balancer: &str,
        id: &str,
        status: ProvisioningStatus,
        write: Write,
    ) -> Result<Arc<LoadBalancer>, ApiError> {
        let serial = self.serial(balancer)?;
        let mut balancer = LoadBalancer::clone(&*self.current(serial)?);
        listener(&mut balancer, id)?.status = status;
        self.table.put(serial, balancer, write);
        self.current(serial)
    }

    /// Returns the load balancer to which a listener, pool or member belongs.
    fn owner(&self, kind: &str, id: &str, has: impl Fn(&LoadBalancer) -> bool) -> Result<u64, ApiError> {
        let found = self.table.truths().find(|(_, balancer)| has(balancer));
        found.map(|(serial, _)| serial).ok_or_else(|| ApiError::not_found(kind, id))
    }
}

/// Applies a pending change that succeeded.
pub(super) fn settle(balancer: &mut LoadBalancer) {
    balancer.status = ProvisioningStatus::Active;
    balancer.listeners.retain(|listener| listener.status != ProvisioningStatus::PendingDelete);
    balancer.pools.retain(|pool| pool.status != ProvisioningStatus::PendingDelete);
    for_each_status(balancer, |status| *status = ProvisioningStatus::Active);
}

/// Applies a pending change that failed. The pending objects and the whole load balancer get the status ERROR.
pub(super) fn fail(balancer: &mut LoadBalancer) {
    balancer.status = ProvisioningStatus::Error;
    for_each_status(balancer, |status| {
        if status.is_pending() {
            *status = ProvisioningStatus::Error;
        }
    });
}

fn for_each_status(balancer: &mut LoadBalancer, change: impl Fn(&mut ProvisioningStatus)) {
    let listeners = balancer.listeners.iter_mut().map(|listener| &mut listener.status);
    listeners.chain(balancer.pools.iter_mut().map(|pool| &mut pool.status)).for_each(change);
}

fn listener<'a>(balancer: &'a mut LoadBalancer, id: &str) -> Result<&'a mut Listener, ApiError> {
    let found = balancer.listeners.iter_mut().find(|listener| listener.id == id);
    found.ok_or_else(|| ApiError::not_found("listener", id))
}

fn pool<'a>(balancer: &'a mut LoadBalancer, id: &str) -> Result<&'a mut Pool, ApiError> {
    balancer.pools.iter_mut().find(|pool| pool.id == id).ok_or_else(|| ApiError::not_found("pool", id))
}

fn add_listener(
    balancer: &mut LoadBalancer,
    request: CreateListener,
    serials: &mut Serials,
    quotas: &Quotas,
) -> Result<Listener, ApiError> {
    check_port(balancer, &request)?;
    check_traffic(request.protocol, &request.traffic)?;
    let (limit, used) = (quotas.listeners_per_load_balancer, balancer.listeners.len());
    quota::check("listeners_per_load_balancer", limit, used, 1)?;
    let pool_id = match (request.pool_id, request.pool) {
        (Some(_), Some(_)) => return Err(ApiError::invalid("pool", "give either `pool` or `pool_id`")),
        (None, None) => None,
        (Some(id), None) => {
            check_fits(request.protocol, pool(balancer, &id)?.protocol)?;
            Some(id)
        }
        (None, Some(new)) => {
            check_fits(request.protocol, new.protocol)?;
            Some(add_pool(balancer, new, &mut *serials, quotas)?.id)
        }
    };
    let listener = Listener {
        id: serials.listener(),
        name: request.name,
        protocol: request.protocol,
        port: request.port,
        idle_timeout: request.idle_timeout,
        allowed_cidrs: request.allowed_cidrs,
        traffic: request.traffic,
        pool_id,
        status: ProvisioningStatus::PendingCreate,
    };
    balancer.listeners.push(listener.clone());
    Ok(listener)
}

fn check_port(balancer: &LoadBalancer, request: &CreateListener) -> Result<(), ApiError> {
    if request.port == 0 {
        return Err(ApiError::invalid("port", "must be 1 to 65535"));
    }
    let taken = |there: &&Listener| (there.protocol, there.port) == (request.protocol, request.port);
    match balancer.listeners.iter().find(taken) {
        None => Ok(()),
        Some(there) => {
            let message = format!("listener {} already has port {} with this protocol", there.id, there.port);
            Err(ApiError::conflict("port_in_use", message))
        }
    }
}

fn check_traffic(protocol: ListenerProtocol, traffic: &Traffic) -> Result<(), ApiError> {
    let ends_tls = matches!(traffic.application, Application::Https | Application::Tls);
    if traffic.application != Application::Pass && protocol != ListenerProtocol::Tcp {
        return Err(ApiError::invalid("traffic.application", "is supported for TCP only"));
    }
    if ends_tls == traffic.certificates.is_empty() {
        return Err(ApiError::invalid(
            "traffic.certificates",
            "must be set for https and tls, and only for them",
        ));
    }
    Ok(())
}

fn check_fits(listener: ListenerProtocol, pool: PoolProtocol) -> Result<(), ApiError> {
    let fits = match pool {
        PoolProtocol::Tcp | PoolProtocol::Proxy => listener == ListenerProtocol::Tcp,
        PoolProtocol::Udp => listener == ListenerProtocol::Udp,
        PoolProtocol::Sctp => listener == ListenerProtocol::Sctp,
    };
    if fits {
        Ok(())
    } else {
        Err(ApiError::invalid("pool", "must have a protocol to which this listener can forward traffic"))
    }
}

fn change_listener(
    balancer: &mut LoadBalancer,
    id: &str,
    request: UpdateListener,
) -> Result<Listener, ApiError> {
    let pool_protocol = match &request.pool_id {
        Some(pool_id) => Some(pool(balancer, pool_id)?.protocol),
        None => None,
    };
    let listener = listener(balancer, id)?;
    if let Some(protocol) = pool_protocol {
        check_fits(listener.protocol, protocol)?;
        listener.pool_id = request.pool_id;
    }
    if let Some(name) = request.name {
        listener.name = name;
    }
    if let Some(idle_timeout) = request.idle_timeout {
        listener.idle_timeout = idle_timeout;
    }
    if let Some(allowed_cidrs) = request.allowed_cidrs {
        listener.allowed_cidrs = allowed_cidrs;
    }
    if let Some(traffic) = request.traffic {
        check_traffic(listener.protocol, &traffic)?;
        listener.traffic = traffic;
    }
    listener.status = ProvisioningStatus::PendingUpdate;
    Ok(listener.clone())
}

fn add_pool(
    balancer: &mut LoadBalancer,
    request: CreatePool,
    serials: &mut Serials,
    quotas: &Quotas,
) -> Result<Pool, ApiError> {
    quota::check("pools_per_load_balancer", quotas.pools_per_load_balancer, balancer.pools.len(), 1)?;
    check_members("members", &request.members)?;
    quota::check("members_per_pool", quotas.members_per_pool, 0, request.members.len())?;
    check_monitor(request.health_monitor.as_ref())?;
    let pool = Pool {
        id: serials.pool(),
        name: request.name,
        protocol: request.protocol,
        algorithm: request.algorithm,
        persistence: request.persistence,
        health_monitor: request.health_monitor,
        members: request.members,
        status: ProvisioningStatus::PendingCreate,
    };
    balancer.pools.push(pool.clone());
    Ok(pool)
}

fn check_monitor(monitor: Option<&HealthMonitor>) -> Result<(), ApiError> {
    let Some(monitor) = monitor else { return Ok(()) };
    if monitor.interval == 0 || monitor.timeout == 0 || monitor.timeout > monitor.interval {
        return Err(ApiError::invalid(
            "health_monitor.timeout",
            "must be at least 1 and at most the interval",
        ));
    }
    if monitor.healthy_threshold == 0 || monitor.unhealthy_threshold == 0 {
        return Err(ApiError::invalid(
            "health_monitor.healthy_threshold",
            "must be at least 1, as must unhealthy_threshold",
        ));
    }
    if monitor.protocol == MonitorProtocol::Tcp && monitor.path.is_some() {
        return Err(ApiError::invalid("health_monitor.path", "is supported for HTTP and HTTPS only"));
    }
    Ok(())
}

fn check_members(field: &str, members: &[Member]) -> Result<(), ApiError> {
    let mut keys = BTreeSet::new();
    for member in members {
        let (address, port) = member.key();
        if port == 0 || member.weight > WEIGHT_MAX {
            let message = format!("{address}: port must be 1 to 65535 and weight at most {WEIGHT_MAX}");
            return Err(ApiError::invalid(field, message));
        }
        if !keys.insert(member.key()) {
            return Err(ApiError::invalid(field, format!("{address} port {port} is given twice")));
        }
    }
    Ok(())
}

fn members_answer(pool: &Pool) -> MembersAnswer {
    MembersAnswer { pool_id: pool.id.clone(), members: pool.members.len(), status: pool.status }
}
