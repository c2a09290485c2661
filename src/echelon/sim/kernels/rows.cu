// The rows of one world's constraint problem: friction of joints, limits of joints, contacts; one warp of 32 threads.
//
//     x = J a - aref,    aref = -b (J v) - k imp(pos) pos,    D = 1/R,    R = (1 - imp) / imp * (inverse weight)
//
// k and b come from the row's solref, imp from its solimp and how deep it is (see MuJoCo's "solver parameters").
//
//     friction of a joint   J = 1 at its dof                        pos = 0
//     limit of a joint      J = +-1 at its dof                      pos = distance to the limit
//     limit of a tendon     J = +- its moment arms                  pos = distance to the limit
//     contact, frictionless J = n                                   pos = distance of the geoms
//     contact, pyramid      J = n + mu1 t1, n - mu1 t1, n + mu2 t2, n - mu2 t2 ...
//     contact, elliptic     J = n, t1, t2                           pos = 0 for t1 and t2
//
// n, t1, t2 are the relative velocity of the two bodies at the contact, along its frame, per unit velocity of each dof (t3 to
// t5, of condim 4 and 6, the relative rotation about its axes): thread j computes dofs j and 32 + j. The first 32 rows, if of
// joints, leave the other entries of J as they were: `newton.cu` does not read them.
// Contacts of a world arrive in `listed` in the order in which the collision pass found them.

    auto within = [](float v, float low, float high) { return v < low ? low : v > high ? high : v; };

    struct Stiffness { float k, b, imp; };
    const float timestep = MODEL(opt_timestep)[0];
    auto stiffness = [&](const float* solref, const float* solimp, float pos) {
        const float constant = REFSAFE ? most(solref[0], 2.0f * timestep) : solref[0];
        const float low = within(solimp[0], MIN_IMP, MAX_IMP), high = within(solimp[1], MIN_IMP, MAX_IMP);
        const float middle = within(solimp[3], MIN_IMP, MAX_IMP), power = most(1.0f, solimp[4]);
        const float depth = fabsf(pos) / most(MIN_VALUE, solimp[2]);
        Stiffness s;
        s.k = solref[0] <= 0.0f ? -solref[0] / most(MIN_VALUE, high * high)
                                : 1.0f / most(MIN_VALUE, high * high * constant * constant * solref[1] * solref[1]);
        s.b = solref[1] <= 0.0f ? -solref[1] / most(MIN_VALUE, high) : 2.0f / most(MIN_VALUE, high * constant);
        if (low == high || solimp[2] <= MIN_VALUE) s.imp = 0.5f * (low + high);
        else if (depth <= 0.0f) s.imp = low;
        else if (depth >= 1.0f) s.imp = high;
        else if (power == 1.0f) s.imp = low + depth * (high - low);
        else {
            const bool before = depth <= middle;
            const float edge = before ? middle : 1.0f - middle, rest = before ? depth : 1.0f - depth;
            const float part = (1.0f / powf(edge, power - 1.0f)) * powf(rest, power);
            s.imp = within(low + (before ? part : 1.0f - part) * (high - low), low, high);
        }
        return s;
    };
    auto put = [&](int r, int type, int id, float pos, float margin, float vel, float loss, float D, float aref) {
        ROW_OF(int, d.efc_type)[r] = type;
        ROW_OF(int, d.efc_id)[r] = id;
        ROW(d.efc_pos)[r] = pos + margin;
        ROW(d.efc_margin)[r] = margin;
        ROW(d.efc_vel)[r] = vel;
        ROW(d.efc_frictionloss)[r] = loss;
        ROW(d.efc_D)[r] = D;
        ROW(d.efc_aref)[r] = aref;
    };
    auto inverse_R = [&](float weight, float imp) { return 1.0f / most(weight * (1.0f - imp) / imp, MIN_VALUE); };
    float* const J = ROW(d.efc_J);
    const float* const qvel = ROW(d.qvel);

    auto put_single = [&](int r, int dof, float value) {  // a row with one entry
        if (r >= 32) for (int i = 0; i < NV_PAD; ++i) J[r * NV_PAD + i] = 0.0f;
        J[r * NV_PAD + dof] = value;
    };

    // ---- friction: dofs that have it, each at its fixed row
    FOR_EACH(r, FRICTIONS < NJMAX ? FRICTIONS : NJMAX) {
        const int dof = t.friction_dof.data[r];
        const Stiffness s = stiffness(MODEL(dof_solref) + 2 * dof, MODEL(dof_solimp) + 5 * dof, 0.0f);
        put_single(r, dof, 1.0f);
        put(r, FRICTION_ROW, dof, 0.0f, 0.0f, qvel[dof], MODEL(dof_frictionloss)[dof],
            inverse_R(MODEL(dof_invweight0)[dof], s.imp), -s.b * qvel[dof]);
    }

    // ---- limits: joints that are beyond theirs
    int limits = 0;
    for (int start = 0; start < LIMITS; start += 32) {
        bool active = false;
        int joint = 0;
        float pos = 0.0f, sign = 0.0f, margin = 0.0f;
        if (start + lane < LIMITS) {
            joint = m.jnt_limited_slide_hinge_adr.data[start + lane];
            const float q = ROW(d.qpos)[m.jnt_qposadr.data[joint]];
            const float* range = MODEL(jnt_range) + 2 * joint;
            margin = MODEL(jnt_margin)[joint];
            sign = q - range[0] < range[1] - q ? 1.0f : -1.0f;
            pos = (sign > 0.0f ? q - range[0] : range[1] - q) - margin;
            active = pos < 0.0f;
        }
        const unsigned beyond = ballot(active);
        const int r = FRICTIONS + limits + count_bits(beyond & ((1u << lane) - 1u));
        limits += count_bits(beyond);
        if (active && r < NJMAX) {
            const int dof = m.jnt_dofadr.data[joint];
            const float vel = sign * qvel[dof];
            const Stiffness s = stiffness(MODEL(jnt_solref) + 2 * joint, MODEL(jnt_solimp) + 5 * joint, pos);
            put_single(r, dof, sign);
            put(r, LIMIT_ROW, joint, pos, margin, vel, 0.0f, inverse_R(MODEL(dof_invweight0)[dof], s.imp),
                -s.k * s.imp * pos - s.b * vel);
        }
    }

    float v[COLUMNS];
    EACH_DOF(c, dof) v[c] = dof < NV ? qvel[dof] : 0.0f;
    auto times_v = [&](const auto& row) {
        float s = 0.0f;
        EACH_DOF(c, dof) s += row[c] * v[c];
        return sum(s);
    };
    int r = FRICTIONS + limits;

    // ---- limits of tendons: all threads together, one after another
    for (int i = 0; i < TENDONS; ++i) {
        const int tendon = m.tendon_limited_adr.data[i];
        const float length = ROW(d.ten_length)[tendon], margin = MODEL(tendon_margin)[tendon];
        const float* range = MODEL(tendon_range) + 2 * tendon;
        const float sign = length - range[0] < range[1] - length ? 1.0f : -1.0f;
        const float pos = (sign > 0.0f ? length - range[0] : range[1] - length) - margin;
        if (pos >= 0.0f) continue;
        ++limits;
        float Je[COLUMNS] = {};
        const int first = m.ten_J_rowadr.data[tendon];
        for (int e = first; e < first + m.ten_J_rownnz.data[tendon]; ++e) {
            EACH_DOF(c, dof) if (m.ten_J_colind.data[e] == dof) Je[c] = sign * ROW(d.ten_J)[e];
        }
        const float vel = times_v(Je);
        const Stiffness s = stiffness(MODEL(tendon_solref_lim) + 2 * tendon, MODEL(tendon_solimp_lim) + 5 * tendon, pos);
        if (r < NJMAX) {
            EACH_DOF(c, dof) if (dof < NV_PAD) J[r * NV_PAD + dof] = Je[c];
            if (lane == 0) {
                put(r, TENDON_ROW, tendon, pos, margin, vel, 0.0f, inverse_R(MODEL(tendon_invweight0)[tendon], s.imp),
                    -s.k * s.imp * pos - s.b * vel);
            }
        }
        ++r;
    }

    // ---- contacts: a thread loads and prepares each, then all threads together write its rows
    enum { FRAME = 0, WHERE = 9, MU = 12, BODY1 = 17, BODY2, DIM, B, B_TANGENT, SPRING, WEIGHT, DEPTH, MARGIN, ID, STAGED };
    SHARED float staged[STAGED * 32];  // number k of contact i at 32 k + i
    spatial_vector cdof[COLUMNS];
    EACH_DOF(c, dof) if (dof < NV) cdof[c] = load6(ROW(d.cdof) + 6 * dof);
    const float* const com = ROW(d.subtree_com);
    const float shrink = MODEL(opt_impratio_invsqrt)[0];
    const int contacts = t.listed_count.data[world] < NJMAX ? t.listed_count.data[world] : NJMAX;
    for (int start = 0; start < contacts; start += 32) {
        const int count = contacts - start < 32 ? contacts - start : 32;
        SYNC();
        if (lane < count) {
            float* const mine = staged + lane;
            const int c = ROW_OF(const int, t.listed)[start + lane];
            const int* geoms = (const int*)&d.contact_geom.data[c];
            const int body1 = m.geom_bodyid.data[geoms[0]], body2 = m.geom_bodyid.data[geoms[1]], dim = d.contact_dim.data[c];
            const float margin = d.contact_includemargin.data[c], pos = d.contact_dist.data[c] - margin;
            const float *mu = (const float*)&d.contact_friction.data[c], *solimp = (const float*)&d.contact_solimp.data[c];
            const float* tangent = (const float*)&d.contact_solreffriction.data[c];
            const Stiffness s = stiffness((const float*)&d.contact_solref.data[c], solimp, pos);
            const float* weights = MODEL(body_invweight0);
            float weight = weights[2 * body1] + weights[2 * body2];
            if (!ELLIPTIC && dim > 1) weight = (weight + mu[0] * mu[0] * weight) * 2.0f * mu[0] * mu[0] * shrink * shrink;
            for (int i = 0; i < 9; ++i) mine[32 * (FRAME + i)] = ((const float*)&d.contact_frame.data[c])[i];
            for (int i = 0; i < 3; ++i) mine[32 * (WHERE + i)] = ((const float*)&d.contact_pos.data[c])[i];
            for (int i = 0; i < 5; ++i) mine[32 * (MU + i)] = mu[i];
            mine[32 * BODY1] = body1;
            mine[32 * BODY2] = body2;
            mine[32 * DIM] = dim;
            mine[32 * B] = s.b;
            mine[32 * B_TANGENT] = ELLIPTIC && (tangent[0] != 0.0f || tangent[1] != 0.0f) ? stiffness(tangent, solimp, pos).b : s.b;
            mine[32 * SPRING] = -s.k * s.imp * pos;
            mine[32 * WEIGHT] = inverse_R(weight, s.imp);
            mine[32 * DEPTH] = pos;
            mine[32 * MARGIN] = margin;
            ((int*)mine)[32 * ID] = c;
        }
        SYNC();
        for (int i = 0; i < count; ++i) {
            const float* const it = staged + i;
            auto number = [&](int k) { return it[32 * k]; };
            const int dim = (int)number(DIM), rows = dim == 1 ? 1 : ELLIPTIC ? dim : 2 * (dim - 1), c = ((const int*)it)[32 * ID];
            vec3 relative[COLUMNS], turn[COLUMNS];  // of body 2 against body 1, per unit velocity of each dof
            auto add = [&](int body, float sign) {
                const int* ancestors = (const int*)((const char*)m.body_isdofancestor.data + (size_t)body * m.body_isdofancestor.strides[0]);
                const float* origin = com + 3 * m.body_rootid.data[body];
                const vec3 arm(number(WHERE) - origin[0], number(WHERE + 1) - origin[1], number(WHERE + 2) - origin[2]);
                EACH_DOF(c, dof) {
                    if (dof >= NV || !ancestors[dof]) continue;
                    const vec3 rotation(cdof[c][0], cdof[c][1], cdof[c][2]);
                    relative[c] = relative[c] + sign * (vec3(cdof[c][3], cdof[c][4], cdof[c][5]) + cross(rotation, arm));
                    turn[c] = turn[c] + sign * rotation;
                }
            };
            add((int)number(BODY2), 1.0f);
            add((int)number(BODY1), -1.0f);
            auto along = [&](int axis, auto& out) {  // 0: n, 1 and 2: t1 and t2, 3 to 5: rotations
                const int row = FRAME + 3 * (axis % 3);
                const vec3 direction(number(row), number(row + 1), number(row + 2));
                EACH_DOF(c, dof) out[c] = dot(axis < 3 ? relative[c] : turn[c], direction);
            };
            float n[COLUMNS], tangent[COLUMNS];
            along(0, n);
            const float n_vel = times_v(n);
            float vel = n_vel;  // of row r + lane
            auto put_J = [&](int e, auto value) {
                EACH_DOF(c, dof) if (dof < NV_PAD && r + e < NJMAX) J[(r + e) * NV_PAD + dof] = value(c);
            };
            if (dim == 1 || ELLIPTIC) put_J(0, [&](int c) { return n[c]; });
            for (int axis = 1; axis < dim; ++axis) {
                along(axis, tangent);
                const float t_vel = times_v(tangent), mu = number(MU + axis - 1);
                if (ELLIPTIC) {
                    put_J(axis, [&](int c) { return tangent[c]; });
                    if (lane == axis) vel = t_vel;
                } else {
                    put_J(2 * axis - 2, [&](int c) { return n[c] + mu * tangent[c]; });
                    put_J(2 * axis - 1, [&](int c) { return n[c] - mu * tangent[c]; });
                    if (lane / 2 == axis - 1) vel = n_vel + (lane % 2 ? -mu : mu) * t_vel;
                }
            }
            if (lane < rows) {
                const bool fits = r + lane < NJMAX, tangent = ELLIPTIC && lane > 0;
                *(int*)((char*)d.contact_efc_address.data + (size_t)c * d.contact_efc_address.strides[0] + lane * d.contact_efc_address.strides[1]) = fits ? r + lane : -1;
                float D = number(WEIGHT);
                if (tangent) {
                    const float ratio = lane == 1 ? 1.0f : number(MU) / number(MU + lane - 1);
                    D = D / (shrink * shrink * (ratio * ratio));
                }
                const int type = dim == 1 ? FRICTIONLESS_ROW : ELLIPTIC ? ELLIPTIC_ROW : PYRAMID_ROW;
                if (fits) {
                    put(r + lane, type, c, tangent ? 0.0f : number(DEPTH), number(MARGIN), vel, 0.0f, D,
                        (tangent ? 0.0f : number(SPRING)) - number(tangent ? B_TANGENT : B) * vel);
                }
            }
            r += rows;
        }
    }
    if (lane == 0) {
        d.ne.data[world] = 0;
        d.nf.data[world] = FRICTIONS;
        d.nl.data[world] = limits;
        d.nefc.data[world] = r;
        t.listed_count.data[world] = 0;  // for the next substep
    }
