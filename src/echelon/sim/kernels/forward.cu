// Smooth dynamics of a world: from qpos, qvel and ctrl to the inertia M and the force qfrc_smooth, in one kernel.
//
//   poses       x_b = x_parent(b) o local_b(qpos)                    1, 2
//   inertia     I_b about the centre of mass c of b's tree           4
//   axes        S_i = (axis, axis x (c - anchor))                    4
//   velocity    v_b = sum of S_i qvel_i over b's ancestors           5
//   forces      f_b = I_b a_b + v_b x* I_b v_b - applied_b           6     a_b = -g + sum of dS_i/dt qvel_i
//   up the tree J_b = sum of I, F_b = sum of f over b's subtree      7
//   M_ij = S_j . J_b(i) S_i     qfrc_smooth_i = -S_i . F_b(i) + springs, dampers, actuators     8, 9
//
// All spatial vectors of a tree (rotation first) are expressed at the tree's centre of mass in world axes, so going down
// or up the tree is a plain sum. Poses and sums over ancestors double the distance that they cover each round
// (`t.jump`: a body's ancestor 1, 2, 4, ... levels up). Sums over subtrees walk the bodies backwards, one lane a number.
// Gravity compensation and xfrc_applied enter as forces on bodies, so their projection to joints costs nothing more.
//
// Shared memory, in numbers (AllegroHand 4.0 KB, AllegroKuka 5.4 KB):
//
//   Q NQ | V NV | P 3 NBODY positions | R 4 NBODY quaternions | X 3 NBODY centres of mass | Com 3 NBODY of subtrees
//   B 17 NBODY    first poses of geoms on their way out, 12 for each of 32, then for each body
//                 0 I then J: 6 of rotation, 3 mass times centre, mass | 10 a then f then F | 16 unused, against bank conflicts
//   S 6 NV        axes
//   W 6 WIDE      anchors and axes of joints, then v, then J S
//
// FORCES 0 stops after velocities; EVERYTHING writes what stock MuJoCo Warp does, otherwise only what collision,
// constraints, solver and `integrate` read.

    SHARED float Q[NQ], V[NV], P[3 * NBODY], X[3 * NBODY], Com[3 * NBODY], B[BODIES], S[6 * NV], W[6 * WIDE];
    SHARED Quat R[NBODY];
    constexpr int parent[] = {PARENTS};

    auto inertia_times = [](const float* i, const spatial_vector& v) {
        return spatial_vector(vec3(i[0] * v[0] + i[3] * v[1] + i[4] * v[2] - i[8] * v[4] + i[7] * v[5],
                              i[3] * v[0] + i[1] * v[1] + i[5] * v[2] + i[8] * v[3] - i[6] * v[5],
                              i[4] * v[0] + i[5] * v[1] + i[2] * v[2] - i[7] * v[3] + i[6] * v[4]),
                         vec3(i[8] * v[1] - i[7] * v[2] + i[9] * v[3],
                              i[6] * v[2] - i[8] * v[0] + i[9] * v[4],
                              i[7] * v[0] - i[6] * v[1] + i[9] * v[5]));
    };
    auto top = [](const spatial_vector& v) { return vec3(v[0], v[1], v[2]); };
    auto bottom = [](const spatial_vector& v) { return vec3(v[3], v[4], v[5]); };
    auto cross_motion = [&](const spatial_vector& u, const spatial_vector& v) {
        return spatial_vector(cross(top(u), top(v)), cross(bottom(u), top(v)) + cross(top(u), bottom(v)));
    };
    auto cross_force = [&](const spatial_vector& v, const spatial_vector& f) {
        return spatial_vector(cross(top(v), top(f)) + cross(bottom(v), bottom(f)), cross(top(v), bottom(f)));
    };
    // Add to each body's vector, one every `stride` numbers, those of all its ancestors.
    auto sum_ancestors = [&](float* x, int stride) {
        for (int round = 0; round < ROUNDS; ++round) {
            spatial_vector sum[SLOTS];
            UNROLL
            for (int k = 0; k < SLOTS; ++k) {
                const int b = 32 * k + lane;
                if (b < NBODY) {
                    const int up = t.jump.data[round * NBODY + b];
                    sum[k] = load6(x + stride * b);
                    if (up) sum[k] = sum[k] + load6(x + stride * up);
                }
            }
            SYNC();
            UNROLL
            for (int k = 0; k < SLOTS; ++k)
                if (32 * k + lane < NBODY) store6(x + stride * (32 * k + lane), sum[k]);
            SYNC();
        }
    };
    // Poses of things that are fixed to bodies: computed a lane each, staged in B, written side by side. Without `ids` all
    // things, without `bodies` the bodies themselves.
    auto frames = [&](int count, const int* ids, const int* bodies, const float* pos, const float* quat, float* xpos, float* xmat) {
        for (int start = 0; start < count; start += 32) {
            const int rest = count - start < 32 ? count - start : 32;
            if (lane < rest) {
                const int id = ids ? ids[start + lane] : start + lane, b = bodies ? bodies[id] : id;
                const Quat q = R[b];
                store3(B + 3 * lane, pos ? load3(P + 3 * b) + rotate(q, load3(pos + 3 * id)) : load3(P + 3 * b));
                matrix(quat ? multiply(q, quats(quat)[id]) : q, B + 96 + 9 * lane);
            }
            SYNC();
            FOR_EACH(i, 3 * rest) xpos[3 * (ids ? ids[start + i / 3] : start + i / 3) + i % 3] = B[i];
            FOR_EACH(i, 9 * rest) xmat[9 * (ids ? ids[start + i / 9] : start + i / 9) + i % 9] = B[96 + i];
            SYNC();
        }
    };

    FOR_EACH(i, NQ) Q[i] = ROW(d.qpos)[i];
    FOR_EACH(i, NV) V[i] = ROW(d.qvel)[i];
    SYNC();

    // ---- 1. poses in the parent's frame; anchors and axes of joints too
    float *Anchor = W, *Axis = W + 3 * NJNT;
    FOR_EACH(b, NBODY) {
        const int mocap = m.body_mocapid.data[b];
        vec3 p = load3(mocap < 0 ? MODEL(body_pos) + 3 * b : ROW(d.mocap_pos) + 3 * mocap);
        Quat q = mocap < 0 ? quats(MODEL(body_quat))[b] : quats(ROW(d.mocap_quat))[mocap];
        const int first = m.body_jntadr.data[b], end = first + m.body_jntnum.data[b];
        for (int j = first; j < end; ++j) {
            const int type = m.jnt_type.data[j], at = m.jnt_qposadr.data[j];
            const vec3 axis = load3(MODEL(jnt_axis) + 3 * j);
            vec3 anchor, direction;
            if (type == FREE) {
                p = load3(Q + at);
                q = normalise(load4(Q + at + 3));
                anchor = p;
                direction = axis;
            } else {
                const vec3 pivot = load3(MODEL(jnt_pos) + 3 * j);
                anchor = p + rotate(q, pivot);
                direction = rotate(q, axis);
                if (type == BALL) {
                    q = multiply(q, normalise(load4(Q + at)));
                    p = anchor - rotate(q, pivot);
                } else {
                    const float moved = Q[at] - MODEL(qpos0)[at];
                    if (type == SLIDE) p = p + moved * direction;
                    else {
                        q = multiply(q, axis_angle(axis, moved));
                        p = anchor - rotate(q, pivot);
                    }
                }
            }
            store3(Anchor + 3 * j, anchor);
            store3(Axis + 3 * j, direction);
        }
        store3(P + 3 * b, p);
        R[b] = normalise(q);
    }
    SYNC();

    // ---- 2. poses in the world: each round puts the pose of the ancestor that a pose is relative to in front of it
    for (int round = 0; round < ROUNDS; ++round) {
        vec3 p[SLOTS];
        Quat q[SLOTS];
        UNROLL
        for (int k = 0; k < SLOTS; ++k) {
            const int b = 32 * k + lane;
            if (b < NBODY) {
                const int up = t.jump.data[round * NBODY + b];
                p[k] = load3(P + 3 * b);
                q[k] = R[b];
                if (up) {
                    const Quat rotation = R[up];
                    p[k] = load3(P + 3 * up) + rotate(rotation, p[k]);
                    q[k] = renormalise(multiply(rotation, q[k]));
                }
            }
        }
        SYNC();
        UNROLL
        for (int k = 0; k < SLOTS; ++k) {
            const int b = 32 * k + lane;
            if (b < NBODY) {
                store3(P + 3 * b, p[k]);
                R[b] = q[k];
            }
        }
        SYNC();
    }

    // ---- 3. geoms and sites; tendons, whose lengths are weighted sums of joints
    frames(NGEOM, EVERYTHING ? t.all_geoms.data : t.geoms.data, m.geom_bodyid.data, MODEL(geom_pos), MODEL(geom_quat), ROW(d.geom_xpos), ROW(d.geom_xmat));
#if EVERYTHING
    frames(NSITE, nullptr, m.site_bodyid.data, MODEL(site_pos), MODEL(site_quat), ROW(d.site_xpos), ROW(d.site_xmat));
    frames(NBODY, nullptr, nullptr, nullptr, nullptr, ROW(d.xpos), ROW(d.xmat));
    frames(NBODY, nullptr, nullptr, MODEL(body_ipos), MODEL(body_iquat), ROW(d.xipos), ROW(d.ximat));
    WRITE(d.xquat, (float*)R, 4 * NBODY)
#endif
    FOR_EACH(k, NTENDON) {
        const int start = m.ten_J_rowadr.data[k];
        float length = 0.0f, velocity = 0.0f;
        for (int i = start; i < start + m.ten_J_rownnz.data[k]; ++i) {
            const int dof = m.ten_J_colind.data[i];
            const float weight = t.tendon_weight.data[i];
            length += weight * Q[t.dof_qposadr.data[dof]];
            velocity += weight * V[dof];
            ROW(d.ten_J)[i] = weight;
        }
        ROW(d.ten_length)[k] = length;
        ROW(d.ten_velocity)[k] = velocity;
    }

    // ---- 4. centres of mass, inertias about them, axes
    const float *mass = MODEL(body_mass), *subtree_mass = MODEL(body_subtreemass);
    FOR_EACH(b, NBODY) {
        const vec3 x = load3(P + 3 * b) + rotate(R[b], load3(MODEL(body_ipos) + 3 * b));
        store3(X + 3 * b, x);
        store3(Com + 3 * b, mass[b] * x);
    }
    SYNC();
    if (lane < 3) {
        UNROLL
        for (int b = NBODY - 1; b > 0; --b) Com[3 * parent[b] + lane] += Com[3 * b + lane];
    }
    SYNC();
    FOR_EACH(b, NBODY) {
        const float total = subtree_mass[b];
        store3(Com + 3 * b, total < MINVAL ? load3(X + 3 * b) : load3(Com + 3 * b) / total);
    }
    SYNC();
    WRITE(d.subtree_com, Com, 3 * NBODY)
    FOR_EACH(b, NBODY) {
        float r[9];
        matrix(multiply(R[b], quats(MODEL(body_iquat))[b]), r);
        const vec3 i = load3(MODEL(body_inertia) + 3 * b);
        const vec3 x = load3(X + 3 * b) - load3(Com + 3 * m.body_rootid.data[b]);
        const float w = mass[b];
        auto world_axes = [&](int row, int column) {
            return r[3 * row] * i[0] * r[3 * column] + r[3 * row + 1] * i[1] * r[3 * column + 1] + r[3 * row + 2] * i[2] * r[3 * column + 2];
        };
        float* o = B + 17 * b;
        o[0] = world_axes(0, 0) + w * (x[1] * x[1] + x[2] * x[2]);
        o[1] = world_axes(1, 1) + w * (x[0] * x[0] + x[2] * x[2]);
        o[2] = world_axes(2, 2) + w * (x[0] * x[0] + x[1] * x[1]);
        o[3] = world_axes(0, 1) - w * x[0] * x[1];
        o[4] = world_axes(0, 2) - w * x[0] * x[2];
        o[5] = world_axes(1, 2) - w * x[1] * x[2];
        o[6] = w * x[0];
        o[7] = w * x[1];
        o[8] = w * x[2];
        o[9] = w;
    }
    FOR_EACH(j, NJNT) {
        const int type = m.jnt_type.data[j], b = m.jnt_bodyid.data[j], up = m.body_parentid.data[b];
        float* s = S + 6 * m.jnt_dofadr.data[j];
        const Quat rotation = R[up];
        const vec3 anchor = load3(P + 3 * up) + rotate(rotation, load3(Anchor + 3 * j)), axis = rotate(rotation, load3(Axis + 3 * j));
        const vec3 arm = load3(Com + 3 * m.body_rootid.data[b]) - anchor;
        if (type == HINGE) store6(s, spatial_vector(axis, cross(axis, arm)));
        else if (type == SLIDE) store6(s, spatial_vector(vec3(0.0f), axis));
        else {
            if (type == FREE) {
                for (int i = 0; i < 18; ++i) s[i] = i % 7 == 3 ? 1.0f : 0.0f;
                s += 18;
            }
            float r[9];
            matrix(R[b], r);
            UNROLL
            for (int i = 0; i < 3; ++i) {
                const vec3 column(r[i], r[3 + i], r[6 + i]);
                store6(s + 6 * i, spatial_vector(column, cross(column, arm)));
            }
        }
#if EVERYTHING
        store3(ROW(d.xanchor) + 3 * j, anchor);
        store3(ROW(d.xaxis) + 3 * j, axis);
#endif
    }
    SYNC();
    WRITE(d.cdof, S, 6 * NV)
#if EVERYTHING
    FOR_EACH(i, 10 * NBODY) ROW(d.cinert)[i] = B[17 * (i / 10) + i % 10];
#endif

    // ---- 5. velocities, and the accelerations that follow from them alone
    FOR_EACH(b, NBODY) {
        spatial_vector v(0.0f);
        const int first = m.body_dofadr.data[b], end = first + m.body_dofnum.data[b];
        for (int i = first; i < end; ++i) v = v + V[i] * load6(S + 6 * i);
        store6(W + 6 * b, v);
    }
    SYNC();
    sum_ancestors(W, 6);
    FOR_EACH(b, NBODY) {
        const int up = m.body_parentid.data[b], first = m.body_jntadr.data[b], end = first + m.body_jntnum.data[b];
        spatial_vector a(0.0f), v = load6(W + 6 * up);
        for (int j = first; j < end; ++j) {
            const int type = m.jnt_type.data[j], count = type <= BALL ? 3 : 1;
            int dof = m.jnt_dofadr.data[j];
            if (type == FREE) {
                for (int i = dof; i < dof + 3; ++i) {
                    v = v + V[i] * load6(S + 6 * i);
#if EVERYTHING
                    store6(ROW(d.cdof_dot) + 6 * i, spatial_vector(0.0f));
#endif
                }
                dof += 3;
            }
            const spatial_vector before = v;
            for (int i = dof; i < dof + count; ++i) {
                const spatial_vector s = load6(S + 6 * i), rate = cross_motion(before, s);
                a = a + V[i] * rate;
                v = v + V[i] * s;
#if EVERYTHING
                store6(ROW(d.cdof_dot) + 6 * i, rate);
#endif
            }
        }
        if (up == 0) a = a - spatial_vector(vec3(0.0f), load3(MODEL(opt_gravity)));
        store6(B + 17 * b + 10, a);
    }
    SYNC();
#if EVERYTHING
    WRITE(d.cvel, W, 6 * NBODY)
#endif
#if FORCES
    sum_ancestors(B + 10, 17);

    // ---- 6. forces on bodies
#if EVERYTHING
    FOR_EACH(i, 6 * NBODY) ROW(d.cacc)[i] = B[17 * (i / 6) + 10 + i % 6];
    SYNC();
#endif
    FOR_EACH(b, NBODY) {
        const spatial_vector v = load6(W + 6 * b);
        spatial_vector f = inertia_times(B + 17 * b, load6(B + 17 * b + 10)) + cross_force(v, inertia_times(B + 17 * b, v));
#if !EVERYTHING
        const float* applied = ROW(d.xfrc_applied) + 6 * b;
        const vec3 push = load3(applied) - mass[b] * MODEL(body_gravcomp)[b] * load3(MODEL(opt_gravity));
        const vec3 arm = load3(X + 3 * b) - load3(Com + 3 * m.body_rootid.data[b]);
        f = f - spatial_vector(load3(applied + 3) + cross(arm, push), push);
#endif
        store6(B + 17 * b + 10, b ? f : spatial_vector(0.0f));
    }
    SYNC();

    // ---- 7. up the tree: lanes 0 to 9 sum inertias, which end at the roots, 10 to 15 forces
    if (lane < 16) {
        UNROLL
        for (int b = NBODY - 1; b > 0; --b)
            if (parent[b] || lane >= 10) B[17 * parent[b] + lane] += B[17 * b + lane];
    }
    SYNC();
#if EVERYTHING
    FOR_EACH(i, 10 * NBODY) ROW(d.crb)[i] = B[17 * (i / 10) + i % 10];
    FOR_EACH(i, 6 * NBODY) ROW(d.cfrc_int)[i] = B[17 * (i / 6) + 10 + i % 6];
#else
    FOR_EACH(i, 10 * NFREE) ROW(d.crb)[10 * t.free.data[i / 10] + i % 10] = B[17 * t.free.data[i / 10] + i % 10];
#endif

    // ---- 8. inertia in the order of MuJoCo's sparse rows
    FOR_EACH(i, NV) store6(W + 6 * i, inertia_times(B + 17 * m.dof_bodyid.data[i], load6(S + 6 * i)));
    SYNC();
    FOR_EACH(k, NC) {
        const int i = m.M_hinit_i.data[k], j = m.M_colind.data[k];
        const float armature = i == j ? MODEL(dof_armature)[i] : 0.0f;
        ROW(d.M)[k] = armature + dot(load6(S + 6 * j), load6(W + 6 * i));
    }

    // ---- 9. forces on joints, and what `integrate` adds to the diagonal of M
    const float timestep = MODEL(opt_timestep)[0];
    FOR_EACH(i, NV) {
        const int j = m.dof_jntid.data[i], at = t.dof_qposadr.data[i];
        const float v = V[i], speed = fabsf(v);
        const spatial_vector s = load6(S + 6 * i);
        const float bias = dot(s, load6(B + 17 * m.dof_bodyid.data[i] + 10));

        const float damping = MODEL(dof_damping)[i], *curve = MODEL(dof_dampingpoly) + 2 * i;
        const float damper = -v * (damping + curve[0] * speed + curve[1] * speed * speed);
        float slope = -(damping + 2.0f * curve[0] * speed + 3.0f * curve[1] * speed * speed);
        float spring = 0.0f;
        if (m.jnt_type.data[j] >= SLIDE) {
            const float x = Q[at] - MODEL(qpos_spring)[at], *bend = MODEL(jnt_stiffnesspoly) + 2 * j;
            spring = -x * (MODEL(jnt_stiffness)[j] + bend[0] * x + bend[1] * x * x);
        }

        float actuated = 0.0f, actuator_slope = 0.0f;
        for (int k = t.dof_actuatoradr.data[i]; k < t.dof_actuatoradr.data[i + 1]; ++k) {
            const int u = t.dof_actuator.data[k];
            const float gear = MODEL(actuator_gear)[6 * u], length = gear * Q[at], velocity = gear * v;
            const float *gains = MODEL(actuator_gainprm) + 10 * u, *biases = MODEL(actuator_biasprm) + 10 * u;
            const float wanted = ROW(d.ctrl)[u];
            float ctrl = wanted, gain = gains[0], rate = 0.0f, force = 0.0f;
            if (m.actuator_ctrllimited.data[u]) {
                const float* range = MODEL(actuator_ctrlrange) + 2 * u;
                ctrl = clamp(ctrl, range[0], range[1]);
            }
            if (m.actuator_gaintype.data[u] == AFFINE_GAIN) {
                gain += gains[1] * length + gains[2] * velocity;
                rate = gains[2] * wanted;
            }
            if (m.actuator_biastype.data[u] == AFFINE_BIAS) {
                force = biases[0] + biases[1] * length + biases[2] * velocity;
                rate += biases[2];
            }
            force = gain * ctrl + force;
            if (m.actuator_forcelimited.data[u]) {
                const float* range = MODEL(actuator_forcerange) + 2 * u;
                force = clamp(force, range[0], range[1]);
                if (force <= range[0] || force >= range[1]) rate = 0.0f;
            }
            actuated += gear * force;
            actuator_slope += gear * gear * rate;
#if EVERYTHING
            ROW(d.actuator_length)[u] = length;
            ROW(d.actuator_velocity)[u] = velocity;
            ROW(d.actuator_force)[u] = force;
#endif
        }
        if (m.jnt_actfrclimited.data[j]) {
            const float* range = MODEL(jnt_actfrcrange) + 2 * j;
            actuated = clamp(actuated, range[0], range[1]);
            if (actuated <= range[0] || actuated >= range[1]) actuator_slope = 0.0f;
        }
        if (IMPLICIT) slope += actuator_slope;
        ROW(t.implicit_damping)[i] = -timestep * slope;

#if EVERYTHING
        float gravcomp = 0.0f, applied = 0.0f;  // apart from the bias
        const int b = m.dof_bodyid.data[i];
        for (int k = b; k < b + m.body_subtreenum.data[b]; ++k) {
            const vec3 compensation = -mass[k] * MODEL(body_gravcomp)[k] * load3(MODEL(opt_gravity));
            const vec3 push = load3(ROW(d.xfrc_applied) + 6 * k), arm = load3(X + 3 * k) - load3(Com + 3 * m.body_rootid.data[k]);
            const vec3 moved = bottom(s) + cross(top(s), arm);
            gravcomp += dot(moved, compensation);
            applied += dot(moved, push) + dot(top(s), load3(ROW(d.xfrc_applied) + 6 * k + 3));
        }
        const float passive = spring + damper + gravcomp;
        ROW(d.qfrc_spring)[i] = spring;
        ROW(d.qfrc_damper)[i] = damper;
        ROW(d.qfrc_gravcomp)[i] = gravcomp;
        ROW(d.qfrc_passive)[i] = passive;
        ROW(d.qfrc_bias)[i] = bias;
        ROW(d.qfrc_actuator)[i] = actuated;
        ROW(d.qfrc_smooth)[i] = passive - bias + actuated + ROW(d.qfrc_applied)[i] + applied;
#else
        ROW(d.qfrc_smooth)[i] = spring + damper - bias + actuated + ROW(d.qfrc_applied)[i];
#endif
    }
#endif
