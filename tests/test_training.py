"Training: what would bore a reader of the notebook."
import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gnn_bandits.graphs import GraphDomain
from gnn_bandits.networks import LazyGNN, LazyNN, forward
from gnn_bandits.training import (ADAM, STOPPING, AdamOptions, Descent, Schedule, StopRule, adam,
                                  check_pulls, descent_filter, distinct_arms, every_pull,
                                  flatness, full_batch, gradient_descent, linearized_fit,
                                  loss_gradient_, make_batches, scaled_rate, tangent_fit)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def X():
    parts = [GraphDomain.erdos_renyi(6, N, 0.3, 4, np.random.default_rng(N)) for N in (2, 5)]
    return GraphDomain.concat(parts)


def pulls(n=12, t=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, n, t), rng.standard_normal(t)


def nets(X, m=24, L=2, dtype=torch.float64):
    for cls in (LazyGNN, LazyNN):
        yield cls.for_domain(X, m, L, rng=np.random.default_rng(3), dtype=dtype)


def test_distinct_arms_keeps_the_loss_for_any_model():
    for seed in range(20):
        arms, y = pulls(t=1 + 7*seed, seed=seed)
        f = np.random.default_rng(100 + seed).standard_normal(12)
        a, b = every_pull(arms, y), distinct_arms(arms, y)
        losses = [h.weight @ (f[h.arms] - h.y)**2 + h.floor for h in (a, b)]
        np.testing.assert_allclose(*losses, rtol=1e-12)
        assert math.isclose(b.weight.sum(), 1) and len(set(b.arms)) == len(b.arms)


@pytest.mark.parametrize("L", [1, 2, 4])
@pytest.mark.parametrize("dtype,tol", [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_gradient_equals_autograd(X, L, dtype, tol):
    arms, y = pulls()
    for net in nets(X, L=L, dtype=dtype):
        rng = np.random.default_rng(L)
        steps = (torch.from_numpy(rng.standard_normal(W.shape)).to(W) for W in net.weights)
        weights = [W + 0.2*step for W, step in zip(net.weights, steps)]
        for h in (every_pull(arms, y), distinct_arms(arms, y)):
            grads = [torch.full_like(W, math.nan) for W in weights]
            value = loss_gradient_(weights, full_batch(net, X, h), grads)
            tracked = [W.clone().requires_grad_() for W in weights]
            x, counts = net.embed(X[h.arms])
            weight, target = (torch.from_numpy(v).to(counts) for v in (h.weight, h.y))
            loss = (weight*(forward(tracked, x, counts) - target)**2).sum()
            assert abs(value/loss.item() - 1) < 10*tol
            for g, e in zip(grads, torch.autograd.grad(loss, tracked)):
                assert (g - e).norm() <= tol*e.norm()


@pytest.mark.parametrize("size", [1, 3, 7, 40, 100])
def test_batches_cover_the_observations(X, size):
    arms, y = pulls()
    h, net = distinct_arms(arms, y), next(nets(X))
    order = np.random.default_rng(0).permutation(len(h.y))
    batches = make_batches(net, X, h, order, size)
    assert_close(torch.cat([b.y for b in batches]), torch.from_numpy(h.y[order]))
    assert math.isclose(sum(b.share for b in batches), 1)
    assert all(math.isclose(float(b.weight.sum()), 1) for b in batches)
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
    arms, y = pulls()
    for net in nets(X):
        a, b = (gradient_descent(net, X, arms, y, Descent(lam=0.05, J=30, distinct=d))
                for d in (False, True))
        assert_close(a(X), b(X), rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(a.losses, b.losses, rtol=1e-12)


def test_the_loss_on_record_is_the_loss_of_the_weights(X):
    arms, y = pulls()
    for net in nets(X):
        done = gradient_descent(net, X, arms, y, Descent(lam=0.3, J=12))
        drift = sum(float((a - b).square().sum()) for a, b in zip(done.net.weights, net.weights))
        error = np.mean((done(X).numpy()[arms] - y)**2)
        np.testing.assert_allclose(done.losses[-1], error + net.m*0.3*drift, rtol=1e-12)
        assert math.isclose(done.losses[0], np.mean(y**2))


def test_loss_curve_of_the_linearised_network(X):
    arms, y = pulls()
    K = next(nets(X)).tangent_kernel(X)
    fits = [linearized_fit(K, arms, y, Descent(lam=0.2, J=J)) for J in range(1, 30)]
    for J, fit in enumerate(fits, 1):
        rule = StopRule(loss=fit.loss*(1 + 1e-12), flat=0)
        early = linearized_fit(K, arms, y, Descent(lam=0.2, J=29, stop=rule))
        assert (early.steps, early.reason) == (J, "loss") and torch.equal(early.mean, fit.mean)
        error = np.mean((fit.mean.numpy()[arms] - y)**2)
        np.testing.assert_allclose(fit.loss, error + 0.2*fit.movement**2, rtol=1e-12)


def test_training_starts_over_and_leaves_the_network_alone(X):
    arms, y = pulls()
    for net in nets(X):
        before = [W.clone() for W in net.weights]
        nine = AdamOptions(max_steps=9)
        for train in (lambda: gradient_descent(net, X, arms, y, Descent(lam=0.1, J=5)),
                      lambda: adam(net, X, arms, y, nine, rng=np.random.default_rng(1))):
            first, second = train(), train()
            assert torch.equal(first(X), second(X)) and first(X).abs().max() > 0
            assert type(first.net) is type(net) and first.net is not net
            assert all(W.grad is None for W in first.net.weights) and (net(X) == 0).all()
            assert all(torch.equal(a, b) for a, b in zip(net.weights, before))


def test_stopping_early_is_a_prefix(X):
    arms, y = pulls()
    net = next(nets(X))
    whole = gradient_descent(net, X, arms, y, Descent(lam=0.1, J=80))
    rule = StopRule(flat=0.01)
    early = gradient_descent(net, X, arms, y, Descent(lam=0.1, J=80, stop=rule))
    j, reason = rule.stops_at(whole.losses)
    assert 0 < j < 80 and (early.steps, early.reason) == (j, reason)
    assert early.losses.tolist() == whole.losses[:j + 1].tolist()
    assert torch.equal(early(X), gradient_descent(net, X, arms, y, Descent(lam=0.1, J=j))(X))


@pytest.mark.parametrize("stopping", STOPPING)
def test_adam_with_one_batch_stops_where_the_rule_says(X, stopping):
    arms, y = pulls(t=8)
    net = next(nets(X))
    rule = StopRule(loss=1e-3, stopping=stopping)
    free, done = (adam(net, X, arms, y, AdamOptions(batch=None, stop=stop, max_steps=300),
                       rng=np.random.default_rng(0)) for stop in (None, rule))
    j, reason = rule.stops_at(free.losses)
    assert (done.steps, done.reason) == ((j, reason) if reason else (300, "steps"))


def test_released_rule_compares_the_last_two_graphs(X):
    rng = np.random.default_rng(0)
    arms, y = np.arange(10), rng.standard_normal(10)
    net = next(nets(X))
    for seed in range(5):
        options = AdamOptions(stop=StopRule(loss=0, stopping="released"))
        done = adam(net, X, arms, y, options, rng=np.random.default_rng(seed))
        order = np.random.default_rng(seed).permutation(10)
        tracked = [W.clone().requires_grad_() for W in net.weights]
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
    arms, y = pulls()
    options = AdamOptions(lr=1e-15, batch=3, max_steps=30, stop=None, distinct=distinct)
    done = adam(next(nets(X)), X, arms, y, options, rng=np.random.default_rng(0))
    np.testing.assert_allclose(done.losses, np.mean(y**2), rtol=1e-9)
    assert len(done.losses) == (30//4 if distinct else 30//14)


def test_steps_are_counted_within_a_pass(X):
    arms, y = pulls()
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
    expected = torch.tensor([200.0], dtype=torch.float64)
    assert_close(descent_filter(kappa, 0.0, 0.1, 1000), expected, rtol=1e-10, atol=0)


def test_linearised_movement_is_bounded_and_converges_at_the_stated_rate(X):
    arms, y = pulls()
    for net in nets(X):
        K = net.tangent_kernel(X)
        for lam in (0.01, 1.0):
            end = linearized_fit(K, arms, y, Descent(lam=lam, J=math.inf))
            moves = [linearized_fit(K, arms, y, Descent(lam=lam, J=J)) for J in (1, 4, 16, 64, 256)]
            assert all(f.movement <= math.sqrt(np.mean(y**2)/lam) for f in moves)
            errors = [float((f.mean - end.mean).abs().max()) for f in moves]
            assert all(b <= a for a, b in zip(errors, errors[1:]))
            worst = float(K.diagonal().max())**0.5*end.movement
            for f, error in zip(moves, errors):
                assert error <= worst*(1 - 2*0.25/(2 + lam)*lam)**f.steps + 1e-12


def test_linearised_fit_ignores_the_order_of_pulls(X):
    arms, y = pulls()
    K = next(nets(X)).tangent_kernel(X)
    order = np.random.default_rng(9).permutation(len(y))
    a, b = (linearized_fit(K, arms[o], y[o], Descent(lam=0.1, J=50)) for o in (slice(None), order))
    assert_close(a.mean, b.mean, rtol=1e-10, atol=1e-12)


def test_trained_network_approaches_its_linearisation(X):
    arms, y = np.arange(6), np.random.default_rng(0).standard_normal(6)
    errors = {m: [] for m in (16, 256)}
    for m in errors:
        for seed in range(6):
            rng = np.random.default_rng([m, seed])
            net = LazyGNN.for_domain(X, m, rng=rng, dtype=torch.float64)
            options = Descent(lam=0.05, J=40)
            fit = linearized_fit(net.tangent_kernel(X), arms, y, options)
            error = gradient_descent(net, X, arms, y, options)(X) - fit.mean
            errors[m].append(float(error.square().mean().sqrt()))
    assert max(errors[256]) < min(errors[16])


def test_flatness_of_short_and_resting_curves():
    for stopping in STOPPING:
        assert flatness([], stopping).tolist() == []
        assert flatness([1.0], stopping).tolist() == [math.inf]
        assert flatness([1.0]*4, stopping)[-1] == 0
    assert StopRule(loss=0.1, flat=0).stops_at([1.0, 0.5, 0.11, 0.1, 0.01]) == (3, "loss")
    assert StopRule().stops_at([0.0]) == (0, "loss") and StopRule().stops_at([1.0]) == (None, None)


def test_schedule():
    assert [t for t in range(1, 12) if Schedule(always_until=3, every=4)(t)] == [1, 2, 3, 7, 11]
    assert [t for t in range(1, 10) if Schedule(always_until=0, every=4)(t)] == [4, 8]
    for bad in (dict(always_until=-1), dict(every=0), dict(every=1.5)):
        with pytest.raises(ValueError): Schedule(**bad)
    with pytest.raises(ValueError): Schedule()(0)


def test_options_are_frozen_and_checked():
    released = StopRule(1e-4, 1e-3, "released")
    assert ADAM["released"] == AdamOptions(lr=1e-3, max_steps=1000, batch=1, stop=released)
    for options in (*ADAM.values(), Descent(lam=1, J=1), StopRule(), Schedule()):
        field = dataclasses.fields(options)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError): setattr(options, field, 1)
    for bad in (dict(lam=-1e-9), dict(lam="1"), dict(lam=math.inf), dict(J=0), dict(J=-1),
                dict(J=True), dict(C=0), dict(C=math.nan), dict(J=math.inf, stop=StopRule())):
        with pytest.raises(ValueError): Descent(**{**dict(lam=0.1, J=3), **bad})
    for bad in (dict(lr=0), dict(lr=math.inf), dict(max_steps=-1), dict(batch=0), dict(batch=2.0)):
        with pytest.raises(ValueError): AdamOptions(**bad)
    with pytest.raises(ValueError, match="'text', 'printed'"): StopRule(stopping="words")


BAD = [([], [], "at least one"), ([0, 1], [1.], "one reward"), ([0], [math.nan], "finite"),
       ([0], [math.inf], "finite"), ([12], [1.], "0 to 11"), ([-1], [1.], "0 to 11"),
       ([0.0], [1.], "integers"), ([True], [1.], "integers"), ([[0]], [[1.]], "integers"),
       ([0], ["x"], "finite rewards, got 'x'")]


@pytest.mark.parametrize("arms,y,words", BAD)
def test_bad_observations_are_refused_everywhere(X, arms, y, words):
    net, two = next(nets(X)), Descent(lam=0.1, J=2)
    before, K = [W.clone() for W in net.weights], net.tangent_kernel(X)
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    for train in (lambda: check_pulls(arms, y, 12),
                  lambda: gradient_descent(net, X, arms, y, two),
                  lambda: adam(net, X, arms, y, rng=rng), lambda: linearized_fit(K, arms, y, two),
                  lambda: tangent_fit(net, X, arms, y, K, 1.)):
        with pytest.raises(ValueError, match=words): train()
    assert all(torch.equal(a, b) for a, b in zip(net.weights, before))
    assert rng.bit_generator.state == state


def test_observations_come_in_any_form():
    "Lists, arrays, tensors, also with a gradient, and single values are one and the same"
    expected = check_pulls([3, 1], [0.5, 2.], 4)
    for arms, y in ((np.array([3, 1]), np.array([0.5, 2.])),
                    (torch.tensor([3, 1]), torch.tensor([0.5, 2.], dtype=torch.float64)),
                    ([torch.tensor(3), np.int64(1)], torch.tensor([0.5, 2.], requires_grad=True))):
        for a, b in zip(check_pulls(arms, y, 4), expected):
            assert a.dtype == b.dtype and a.tolist() == b.tolist()
    assert [v.tolist() for v in check_pulls(3, torch.tensor(0.5), 4)] == [[3], [0.5]]


def test_bad_kernels_and_divergence(X):
    net = next(nets(X))
    K = net.tangent_kernel(X)
    for bad in (K[:3], K.numpy(), -K, K*math.nan):
        with pytest.raises(ValueError): linearized_fit(bad, [0, 1], [1., 2.], Descent(lam=0.1, J=3))
    with pytest.raises(ValueError, match="diverges"):
        linearized_fit(K, [0, 1], [1., 2.], Descent(lam=0.1, J=3, C=99))
    with pytest.raises(ValueError, match="smaller learning rate"):
        gradient_descent(net, X, [0, 1], [1., 2.], Descent(lam=0.1, J=400, C=99))
    with pytest.raises(ValueError, match="smaller learning rate"):
        adam(net, X, [0, 1], [1., 2.], AdamOptions(lr=1e200), rng=np.random.default_rng(0))


def test_the_scaled_rate_moves_outputs_by_half_the_size_of_the_rewards(X):
    arms, y = pulls()
    for m in (64, 256):
        for net in nets(X, m):
            h = distinct_arms(arms, y)
            lr, size = scaled_rate(net, X, h), math.sqrt(h.weight @ h.y**2)
            g = net.gradients(X[h.arms[:2]]).abs().sum(1).mean()
            assert math.isclose(lr*float(g), size/2, rel_tol=1e-9)
            assert math.isclose(scaled_rate(net, X, distinct_arms(arms, 3*y)), 3*lr, rel_tol=1e-9)
            fit, named = (adam(net, X, arms, y, o, rng=np.random.default_rng(0))
                          for o in (ADAM["scaled"], dataclasses.replace(ADAM["scaled"], lr=lr)))
            assert_close(fit(X), named(X), rtol=0, atol=0)
            assert fit.losses[-1] < 0.9*fit.losses[0]
