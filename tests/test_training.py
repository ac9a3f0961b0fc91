"Training: what would bore a reader of the notebook."
import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits.graphs import GraphDomain
from gnn_bandits.networks import LazyGNN, LazyNN, forward
from gnn_bandits.training import (ADAM, READINGS, AdamOptions, Descent, Schedule, StopRule, adam, check_history, descent_filter,
                                  distinct_arms, every_pull, flatness, full_batch, gradient_descent, linearized_fit,
                                  loss_gradient_, pack, scaled_rate)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def X(): return GraphDomain.concat([GraphDomain.erdos_renyi(6, N, 0.3, 4, np.random.default_rng(N)) for N in (2, 5)])


def history(n=12, t=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, n, t), rng.standard_normal(t)


def nets(X, m=24, L=2, dtype=torch.float64):
    for cls in (LazyGNN, LazyNN): yield cls.for_domain(X, m, L, rng=np.random.default_rng(3), dtype=dtype)


def test_distinct_arms_keeps_the_loss_for_any_model():
    for seed in range(20):
        arms, y = history(t=1 + 7*seed, seed=seed)
        f = np.random.default_rng(100 + seed).standard_normal(12)
        a, b = every_pull(arms, y), distinct_arms(arms, y)
        losses = [h.weight @ (f[h.arms] - h.y)**2 + h.floor for h in (a, b)]
        np.testing.assert_allclose(*losses, rtol=1e-12)
        assert math.isclose(b.weight.sum(), 1) and len(set(b.arms)) == len(b.arms)


@pytest.mark.parametrize("L", [1, 2, 4])
@pytest.mark.parametrize("dtype,tol", [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_gradient_equals_autograd(X, L, dtype, tol):
    arms, y = history()
    for net in nets(X, L=L, dtype=dtype):
        rng = np.random.default_rng(L)
        weights = [W + 0.2*torch.from_numpy(rng.standard_normal(W.shape)).to(W) for W in net.weights]
        for h in (every_pull(arms, y), distinct_arms(arms, y)):
            grads = [torch.full_like(W, math.nan) for W in weights]
            value = loss_gradient_(weights, full_batch(net, X, h), grads)
            tracked = [W.clone().requires_grad_() for W in weights]
            x, counts = net.embed(X[h.arms])
            loss = (torch.from_numpy(h.weight).to(counts)*(forward(tracked, x, counts) - torch.from_numpy(h.y).to(counts))**2).sum()
            assert abs(value/loss.item() - 1) < 10*tol
            for g, e in zip(grads, torch.autograd.grad(loss, tracked)): assert (g - e).norm() <= tol*e.norm()


@pytest.mark.parametrize("size", [1, 3, 7, 40, 100])
def test_batches_cover_the_history(X, size):
    arms, y = history()
    h, net = distinct_arms(arms, y), next(nets(X))
    order = np.random.default_rng(0).permutation(len(h.y))
    batches = pack(net, X, h, order, size)
    assert_close(torch.cat([b.y for b in batches]), torch.from_numpy(h.y[order]))
    assert math.isclose(sum(b.share for b in batches), 1) and all(math.isclose(float(b.weight.sum()), 1) for b in batches)
    assert sum(len(b.x) for b in batches) == int(X.sizes[h.arms].sum())
    whole, parts = [[torch.zeros_like(W) for W in net.weights] for _ in range(2)]
    total = loss_gradient_(net.weights, full_batch(net, X, h), whole)
    grads, seen = [torch.empty_like(W) for W in net.weights], 0
    for b in batches:
        seen += b.share*loss_gradient_(net.weights, b, grads)
        for p, g in zip(parts, grads): p.add_(g, alpha=b.share)
    assert math.isclose(seen, total, rel_tol=1e-12)
    for p, w in zip(parts, whole): assert_close(p, w, rtol=1e-10, atol=1e-12)


def test_descent_by_pull_and_by_arm_is_the_same(X):
    arms, y = history()
    for net in nets(X):
        a, b = (gradient_descent(net, X, arms, y, Descent(lam=0.05, J=30, distinct=d)) for d in (False, True))
        assert_close(a(X), b(X), rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(a.losses, b.losses, rtol=1e-12)


def test_the_loss_on_record_is_the_loss_of_the_weights(X):
    arms, y = history()
    for net in nets(X):
        done = gradient_descent(net, X, arms, y, Descent(lam=0.3, J=12))
        drift = sum(float((a - b).square().sum()) for a, b in zip(done.net.weights, net.weights))
        np.testing.assert_allclose(done.losses[-1], np.mean((done(X).numpy()[arms] - y)**2) + net.m*0.3*drift, rtol=1e-12)
        assert math.isclose(done.losses[0], np.mean(y**2))


def test_loss_curve_of_the_linearised_network(X):
    arms, y = history()
    K = next(nets(X)).tangent_kernel(X)
    fits = [linearized_fit(K, arms, y, Descent(lam=0.2, J=J)) for J in range(1, 30)]
    for J, fit in enumerate(fits, 1):
        early = linearized_fit(K, arms, y, Descent(lam=0.2, J=29, stop=StopRule(loss=fit.loss*(1 + 1e-12), flat=0)))
        assert (early.steps, early.reason) == (J, "loss") and torch.equal(early.mean, fit.mean)
        np.testing.assert_allclose(fit.loss, np.mean((fit.mean.numpy()[arms] - y)**2) + 0.2*fit.movement**2, rtol=1e-12)


def test_training_starts_over_and_leaves_the_network_alone(X):
    arms, y = history()
    for net in nets(X):
        before = [W.clone() for W in net.weights]
        for train in (lambda: gradient_descent(net, X, arms, y, Descent(lam=0.1, J=5)),
                      lambda: adam(net, X, arms, y, AdamOptions(max_steps=9), rng=np.random.default_rng(1))):
            first, second = train(), train()
            assert torch.equal(first(X), second(X)) and first(X).abs().max() > 0
            assert type(first.net) is type(net) and first.net is not net and all(W.grad is None for W in first.net.weights)
            assert all(torch.equal(a, b) for a, b in zip(net.weights, before)) and (net(X) == 0).all()


def test_stopping_early_is_a_prefix(X):
    arms, y = history()
    net = next(nets(X))
    whole = gradient_descent(net, X, arms, y, Descent(lam=0.1, J=80))
    rule = StopRule(flat=0.01)
    early = gradient_descent(net, X, arms, y, Descent(lam=0.1, J=80, stop=rule))
    j, reason = rule.first(whole.losses)
    assert 0 < j < 80 and (early.steps, early.reason) == (j, reason) and early.losses.tolist() == whole.losses[:j + 1].tolist()
    assert torch.equal(early(X), gradient_descent(net, X, arms, y, Descent(lam=0.1, J=j))(X))


@pytest.mark.parametrize("reading", READINGS)
def test_adam_with_one_batch_stops_where_the_rule_says(X, reading):
    arms, y = history(t=8)
    net = next(nets(X))
    free = adam(net, X, arms, y, AdamOptions(batch=None, stop=None, max_steps=300), rng=np.random.default_rng(0))
    rule = StopRule(loss=1e-3, reading=reading)
    done = adam(net, X, arms, y, AdamOptions(batch=None, stop=rule, max_steps=300), rng=np.random.default_rng(0))
    j, reason = rule.first(free.losses)
    assert (done.steps, done.reason) == ((j, reason) if reason else (300, "steps"))


def test_released_rule_compares_the_last_two_graphs(X):
    rng = np.random.default_rng(0)
    arms, y = np.arange(10), rng.standard_normal(10)
    net = next(nets(X))
    for seed in range(5):
        done = adam(net, X, arms, y, AdamOptions(stop=StopRule(loss=0, reading="released")), rng=np.random.default_rng(seed))
        order, tracked = np.random.default_rng(seed).permutation(10), [W.clone().requires_grad_() for W in net.weights]
        optimizer, steps, stop = torch.optim.Adam(tracked, lr=1e-3), 0, False
        while not stop and steps < 1000:
            met = []
            for i in order:
                x, counts = net.embed(X[int(i)])
                optimizer.zero_grad()
                loss = (forward(tracked, x, counts) - y[i]).square().sum()
                loss.backward()
                optimizer.step()
                met.append(loss.item())
                steps += 1
            stop = 1 - met[-1]/met[-2] <= 1e-3
        assert done.steps == steps


@pytest.mark.parametrize("distinct", [False, True])
def test_loss_of_a_pass_is_the_mean_over_pulls(X, distinct):
    arms, y = history()
    options = AdamOptions(lr=1e-15, batch=3, max_steps=30, stop=None, distinct=distinct)       # next to no movement
    done = adam(next(nets(X)), X, arms, y, options, rng=np.random.default_rng(0))
    np.testing.assert_allclose(done.losses, np.mean(y**2), rtol=1e-9)
    assert len(done.losses) == (30//4 if distinct else 30//14)


def test_steps_are_counted_within_a_pass(X):
    arms, y = history()
    done = adam(next(nets(X)), X, arms, y, AdamOptions(max_steps=7), rng=np.random.default_rng(0))
    assert (done.steps, done.reason, len(done.losses)) == (7, "steps", 0)


@pytest.mark.parametrize("lam,C", [(0.0, 0.25), (1e-6, 0.5), (0.3, 0.1), (30.0, 0.25)])
def test_filter_against_the_recursion(lam, C):
    kappa = torch.tensor([0, 1e-17, 1e-9, 1e-3, 0.2, 1.0, 2.5], dtype=torch.float64)
    rate = C/(2 + lam)
    phi = torch.zeros_like(kappa)
    for J in range(1, 60):
        phi = phi + 2*rate*(1 - (kappa + lam)*phi)
        assert_close(descent_filter(kappa, lam, rate, J), phi, rtol=1e-12, atol=0)


def test_filter_has_no_cancellation():
    kappa = torch.tensor([1e-14], dtype=torch.float64)
    assert_close(descent_filter(kappa, 0.0, 0.1, 1000), torch.tensor([200.0], dtype=torch.float64), rtol=1e-10, atol=0)


def test_linearised_movement_is_bounded_and_converges_at_the_stated_rate(X):
    arms, y = history()
    for net in nets(X):
        K = net.tangent_kernel(X)
        for lam in (0.01, 1.0):
            end = linearized_fit(K, arms, y, Descent(lam=lam, J=math.inf))
            moves = [linearized_fit(K, arms, y, Descent(lam=lam, J=J)) for J in (1, 4, 16, 64, 256)]
            assert all(f.movement <= math.sqrt(np.mean(y**2)/lam) for f in moves)
            gaps = [float((f.mean - end.mean).abs().max()) for f in moves]
            assert all(b <= a for a, b in zip(gaps, gaps[1:]))
            worst = float(K.diagonal().max())**0.5*end.movement
            for f, gap in zip(moves, gaps): assert gap <= worst*(1 - 2*0.25/(2 + lam)*lam)**f.steps + 1e-12


def test_linearised_fit_ignores_the_order_of_pulls(X):
    arms, y = history()
    K = next(nets(X)).tangent_kernel(X)
    order = np.random.default_rng(9).permutation(len(y))
    a, b = (linearized_fit(K, arms[o], y[o], Descent(lam=0.1, J=50)) for o in (slice(None), order))
    assert_close(a.mean, b.mean, rtol=1e-10, atol=1e-12)


def test_trained_network_approaches_its_linearisation(X):
    arms, y = np.arange(6), np.random.default_rng(0).standard_normal(6)
    gap = {m: [] for m in (16, 256)}
    for m in gap:
        for seed in range(6):
            net = LazyGNN.for_domain(X, m, rng=np.random.default_rng([m, seed]), dtype=torch.float64)
            options = Descent(lam=0.05, J=40)
            fit = linearized_fit(net.tangent_kernel(X), arms, y, options)
            gap[m].append(float((gradient_descent(net, X, arms, y, options)(X) - fit.mean).square().mean().sqrt()))
    assert max(gap[256]) < min(gap[16])


def test_flatness_of_short_and_resting_curves():
    for reading in READINGS:
        assert flatness([], reading).tolist() == [] and flatness([1.0], reading).tolist() == [math.inf]
        assert flatness([1.0]*4, reading)[-1] == 0
    assert StopRule(loss=0.1, flat=0).first([1.0, 0.5, 0.11, 0.1, 0.01]) == (3, "loss")
    assert StopRule().first([0.0]) == (0, "loss") and StopRule().first([1.0]) == (None, None)


def test_schedule():
    assert [t for t in range(1, 12) if Schedule(first=3, every=4)(t)] == [1, 2, 3, 7, 11]
    assert [t for t in range(1, 10) if Schedule(first=0, every=4)(t)] == [4, 8]
    for bad in (dict(first=-1), dict(every=0), dict(every=1.5)):
        with pytest.raises(ValueError): Schedule(**bad)
    with pytest.raises(ValueError): Schedule()(0)


def test_options_are_frozen_and_checked():
    assert ADAM["released"] == AdamOptions(lr=1e-3, max_steps=1000, batch=1, stop=StopRule(1e-4, 1e-3, "released"))
    for options in (*ADAM.values(), Descent(lam=1, J=1), StopRule(), Schedule()):
        with pytest.raises(dataclasses.FrozenInstanceError): setattr(options, dataclasses.fields(options)[0].name, 1)
    for bad in (dict(lam=-1e-9), dict(lam="1"), dict(lam=math.inf), dict(J=0), dict(J=-1), dict(J=True), dict(C=0), dict(C=math.nan),
                dict(J=math.inf, stop=StopRule())):
        with pytest.raises(ValueError): Descent(**{**dict(lam=0.1, J=3), **bad})
    for bad in (dict(lr=0), dict(lr=math.inf), dict(max_steps=-1), dict(batch=0), dict(batch=2.0)):
        with pytest.raises(ValueError): AdamOptions(**bad)


BAD = [([], [], "at least one"), ([0, 1], [1.], "one reward"), ([0], [math.nan], "finite"), ([0], [math.inf], "finite"), ([12], [1.], "0 to 11"),
       ([-1], [1.], "0 to 11"), ([0.0], [1.], "integers"), ([True], [1.], "integers"), ([[0]], [[1.]], "one reward"), ([0], ["x"], "numbers")]


@pytest.mark.parametrize("arms,y,words", BAD)
def test_bad_histories_are_refused_everywhere(X, arms, y, words):
    net = next(nets(X))
    before = [W.clone() for W in net.weights]
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    for train in (lambda: check_history(arms, y, 12), lambda: gradient_descent(net, X, arms, y, Descent(lam=0.1, J=2)),
                  lambda: adam(net, X, arms, y, rng=rng), lambda: linearized_fit(net.tangent_kernel(X), arms, y, Descent(lam=0.1, J=2))):
        with pytest.raises(ValueError, match=words): train()
    assert all(torch.equal(a, b) for a, b in zip(net.weights, before)) and rng.bit_generator.state == state


def test_bad_kernels_and_divergence(X):
    net = next(nets(X))
    K = net.tangent_kernel(X)
    for bad in (K[:3], K.numpy(), -K, K*math.nan):
        with pytest.raises(ValueError): linearized_fit(bad, [0, 1], [1., 2.], Descent(lam=0.1, J=3))
    with pytest.raises(ValueError, match="diverges"): linearized_fit(K, [0, 1], [1., 2.], Descent(lam=0.1, J=3, C=99))
    with pytest.raises(ValueError, match="smaller learning rate"): gradient_descent(net, X, [0, 1], [1., 2.], Descent(lam=0.1, J=400, C=99))
    with pytest.raises(ValueError, match="smaller learning rate"): adam(net, X, [0, 1], [1., 2.], AdamOptions(lr=1e200), rng=np.random.default_rng(0))


def test_the_scaled_rate_moves_outputs_by_half_the_size_of_the_rewards(X):
    arms, y = history()
    for m in (64, 256):
        for net in nets(X, m):
            h = distinct_arms(arms, y)
            lr, size = scaled_rate(net, X, h), math.sqrt(h.weight @ h.y**2)
            g = net.gradients(X[h.arms[:2]]).abs().sum(1).mean()
            assert math.isclose(lr*float(g), size/2, rel_tol=1e-9)
            assert math.isclose(scaled_rate(net, X, distinct_arms(arms, 3*y)), 3*lr, rel_tol=1e-9)
            fit, named = (adam(net, X, arms, y, o, rng=np.random.default_rng(0)) for o in (ADAM["scaled"], dataclasses.replace(ADAM["scaled"], lr=lr)))
            assert_close(fit(X), named(X), rtol=0, atol=0)
            assert fit.losses[-1] < 0.9*fit.losses[0]
