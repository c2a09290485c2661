// MuJoCo's constraint problem of one world, solved by Newton's method in one warp of 32 threads.
//
//     minimise over a     1/2 (a - a_s)' M (a - a_s)  +  sum over rows r of s_r(x_r),       x = J a - aref
//
//     force of a row      f_r = -s_r'(x_r)
//     gradient            g   = M a - q - J' f                  q = M a_s: the force without constraints
//     Hessian             H   = M + J' diag(s'') J              a column per dof
//     direction           p   = -H^-1 g                         by H = L D L'
//     step                a  <- a + t p                         t by a bracketing Newton search along p
//
// The penalty s of a row, with D = 1/R:
//
//     equality              D/2 x^2
//     friction of a joint   D/2 x^2 where |x| < loss/D, linear with slope +-loss beyond
//     limit, pyramid edge   D/2 x^2 where x < 0, else 0
//     elliptic contact      its 3, 4 or 6 rows together, N = mu x_0 and T = |(f_1 x_1, f_2 x_2, ...)|:
//                             N >= mu T        nothing           (the contact opens)
//                             mu N + T <= 0    D_i/2 x_i^2 each  (it sticks)
//                             between          Dm/2 (N - mu T)^2 (it slides), Dm = D_0 / (mu^2 (1 + mu^2))
//
// Who holds what:
//
//     thread j, in registers   dof j, with more than 32 dofs also dof 32 + j (COLUMNS is 2): a, g, p, M a, M p, and its
//                              column of the factor of H; up to 32 dofs that of H too, kept up to date row by row
//                              rows j, 32 + j, 64 + j ...: x, J p, D, force, state      (slot k is row 32 k + j)
//     shared memory            J  [ROWS, LD]    rows of contacts          force [ROWS + 4]  their forces
//                              M  [NV, TREE]    inertia, see below        V, W  [2, DOFS]   vectors that threads exchange
//                              U  [32, UD]      rows of the factor from 32 on, of the first 32 columns
//                              xs, ps [32 SLOTS + 8]                      x and J p of all rows (elliptic cones only)
//
// Friction and limits of joints, the first rows, touch one dof each: such a row is a dof and a sign, and its part of H is on
// the diagonal. Inertia couples the dofs of one tree, at most TREE: row i of M begins at the first dof of i's tree. NV4 is NV
// rounded up to four numbers, which are loaded at a time; LD avoids bank conflicts of that.

    auto least = [](int a, int b) { return a < b ? a : b; };
    auto divide = [](float a, float b) { return b != 0.0f ? a / b : 0.0f; };
    auto dot = [](const float* p, const float* q) {  // of NV numbers in shared memory; the padding is 0
        float s = 0.0f;
#if defined(__CUDA_ARCH__)
        UNROLL
        for (int i = 0; i < NV4 / 4; ++i) {
            const float4 a = reinterpret_cast<const float4*>(p)[i], b = reinterpret_cast<const float4*>(q)[i];
            s += a.x * b.x; s += a.y * b.y; s += a.z * b.z; s += a.w * b.w;
        }
#else
        for (int i = 0; i < NV; ++i) s += p[i] * q[i];
#endif
        return s;
    };
    SYNC();  // another world may have been here before
    SHARED float J[ROWS * LD];
    SHARED float M[NV * TREE];
    SHARED float V[2 * DOFS];
    SHARED float W[2 * DOFS];
    SHARED float forces[ROWS + 4];
    SHARED int first[DOFS], end[DOFS];
#if COLUMNS > 1
    SHARED float U[32 * UD];
#endif
#if ELLIPTIC
    SHARED float xs[32 * SLOTS + 8];
    SHARED float ps[32 * SLOTS + 8];
#endif

    // ---- what this world has: equalities, then friction, then limits, then contacts
    const int rows = least(d.nefc.data[world], NJMAX);
    const int equalities = least(d.ne.data[world], rows);
    const int frictions = least(equalities + d.nf.data[world], rows);
    int joints = 0;  // rows at the front that touch one dof
    if (JOINT_ROWS) {
        const int kind = lane < rows ? ROW_OF(const int, d.efc_type)[lane] : -1;
        const unsigned others = ~ballot(kind == FRICTION_ROW || kind == LIMIT_ROW);
        joints = others ? lowest(others) : 32;
    }
    const int contacts = rows - joints;
    // one kernel has little room, for the many worlds with few rows; another one solves the rest
    const bool few = rows <= 32 * FEW_SLOTS && contacts <= FEW_ROWS;
    if ((PART == 1 && !few) || (PART == 2 && few)) return;

    // ---- contacts' rows and the inertia into shared memory
    {
        const float* source = ROW(d.efc_J) + joints * NV_PAD;
#if defined(__CUDA_ARCH__)
        for (int i = lane; i < contacts * (NV4 / 4); i += 32) {
            const int r = i / (NV4 / 4), c = 4 * (i - r * (NV4 / 4));
            *reinterpret_cast<float4*>(&J[r * LD + c]) = *reinterpret_cast<const float4*>(&source[r * NV_PAD + c]);
        }
#else
        for (int i = lane; i < contacts * NV4; i += 32) J[(i / NV4) * LD + i % NV4] = source[(i / NV4) * NV_PAD + i % NV4];
#endif
    }
    EACH_DOF(c, dof) {
        const int tree = dof < NV ? m.dof_treeid.data[dof] : 0;
        first[dof] = m.tree_dofadr.data[tree];
        end[dof] = dof < NV ? first[dof] + m.tree_dofnum.data[tree] : 0;
        V[dof] = V[DOFS + dof] = 0.0f;
    }
    for (int i = lane; i < NV * TREE; i += 32) M[i] = 0.0f;
    if (lane < 4) forces[ROWS + lane] = 0.0f;
    SYNC();
    for (int i = lane; i < NONZEROS; i += 32) {
        const int row = m.M_hinit_i.data[i], column = m.M_colind.data[i], start = first[row];
        M[row * TREE + column - start] = M[column * TREE + row - start] = ROW(d.M)[i];
    }

    // ---- dofs: thread j has dof j, and 32 + j
    float a[COLUMNS], smooth[COLUMNS];
    EACH_DOF(c, dof) {
        a[c] = smooth[c] = 0.0f;
        if (dof < NV) {
            a[c] = (WARM && rows > 0) || !COLD ? ROW(d.qacc_warmstart)[dof] : ROW(d.qacc_smooth)[dof];
            smooth[c] = ROW(d.qfrc_smooth)[dof];
        }
    }
    SYNC();
    auto sum_dofs = [&](auto term) {  // of a number for each dof
        float s = 0.0f;
        EACH_DOF(c, dof) if (dof < NV) s += term(c, dof);
        return sum(s);
    };
    const float scale = 1.0f / most(1.0e-15f, sum_dofs([&](int, int dof) { return M[dof * TREE + dof - first[dof]]; }));

    // ---- rows: thread j has row 32 k + j in slot k
    float x[SLOTS], xp[SLOTS], D[SLOTS], loss[SLOTS], force[SLOTS];
    int state[SLOTS];
    int joint_dof = 0;
    float joint_sign = 0.0f;
#if ELLIPTIC
    int normal[SLOTS];  // the first row of this row's contact, or -1
    float mu[SLOTS];
    const float shrink = MODEL(opt_impratio_invsqrt)[0];
    auto friction = [&](int r) { return (const float*)&d.contact_friction.data[ROW_OF(const int, d.efc_id)[r]]; };
#if CONDIM > 3
    int dims[SLOTS];  // rows of this row's contact
#define DIMS(k) dims[k]
#else
#define DIMS(k) 3
#endif
// each tangent direction i of the contact whose row lies in slot k
#define EACH_TANGENT(i, k) UNROLL for (int i = 1; i < CONDIM; ++i) if (i < DIMS(k))
#endif
    UNROLL
    for (int k = 0; k < SLOTS; ++k) {
        const int r = 32 * k + lane;
        x[k] = xp[k] = D[k] = loss[k] = force[k] = 0.0f;
        state[k] = SATISFIED;
#if ELLIPTIC
        normal[k] = -1;
        mu[k] = 0.0f;
#if CONDIM > 3
        dims[k] = 0;
#endif
#endif
        if (r < rows) {
            D[k] = ROW(d.efc_D)[r];
            x[k] = -ROW(d.efc_aref)[r];
            if (r >= equalities && r < frictions) loss[k] = ROW(d.efc_frictionloss)[r];
            if (k == 0 && r < joints) {
                const int id = ROW_OF(const int, d.efc_id)[r];
                joint_dof = r < frictions ? id : m.jnt_dofadr.data[id];
                joint_sign = ROW(d.efc_J)[r * NV_PAD + joint_dof];
            }
#if ELLIPTIC
            if (ROW_OF(const int, d.efc_type)[r] == ELLIPTIC_ROW) {
                const int contact = ROW_OF(const int, d.efc_id)[r];
                normal[k] = *(const int*)((const char*)d.contact_efc_address.data + (size_t)contact * d.contact_efc_address.strides[0]);
                mu[k] = friction(r)[0] * shrink;
#if CONDIM > 3
                dims[k] = d.contact_dim.data[contact];
#endif
            }
#endif
        }
    }

    auto put_dofs = [&](const auto& mine) {
        EACH_DOF(c, dof) if (dof < NV) V[dof] = mine[c];
        SYNC();
    };
    auto J_times = [&](const auto& mine, auto& out) {
        put_dofs(mine);
        UNROLL
        for (int k = 0; k < SLOTS; ++k) {
            if (32 * k >= rows) continue;
            const int r = 32 * k + lane;
            float s = 0.0f;
            if (k == 0 && r < joints) s = joint_sign * V[joint_dof];
            if (r >= joints && r < rows) s = dot(&J[(r - joints) * LD], V);
            out[k] = s;
        }
        SYNC();
    };
    auto M_times = [&](const auto& mine, auto& out) {
        put_dofs(mine);
        EACH_DOF(c, dof) {
            const int start = first[dof], count = end[dof] - start;
            const float* column = &M[start * TREE + dof - start];
            float s = 0.0f;
            UNROLL
            for (int i = 0; i < TREE; ++i) if (i < count) s += column[i * TREE] * V[start + i];
            out[c] = s;
        }
        SYNC();
    };
    auto put_joint_rows = [&](float value, auto& out) {  // W: a number per dof from friction, another one from limits
        EACH_DOF(c, dof) W[dof] = W[DOFS + dof] = 0.0f;
        SYNC();
        if (lane < joints) W[(lane < frictions ? 0 : DOFS) + joint_dof] = value;
        SYNC();
        EACH_DOF(c, dof) out[c] = dof < NV ? W[dof] + W[DOFS + dof] : 0.0f;
    };
    // A thread's columns of H, and of H = L D L' in place: above the diagonal its row of L, below it d L. H being symmetric,
    // the first column needs no rows beyond 32; of d L, U has them.
#define KEPT(c, i) (i < NV && i < 32 * c + 32)
    auto set_inertia = [&](auto& H) {
        EACH_DOF(c, dof) {
            const int start = first[dof], stop = end[dof];
            UNROLL
            for (int i = 0; i < NV; ++i) {
                if (KEPT(c, i)) H[c][i] = i >= start && i < stop ? M[i * TREE + dof - start] : 0.0f;
            }
        }
    };
    auto add_outer = [&](auto& H, const auto& weights, const float* row) {  // H += weights row', row in shared memory
        auto add = [&](int i, float entry) { EACH_DOF(c, dof) if (KEPT(c, i)) H[c][i] += weights[c] * entry; };
#if defined(__CUDA_ARCH__)
        UNROLL
        for (int i = 0; i < NV4; i += 4) {
            const float4 f = *reinterpret_cast<const float4*>(row + i);
            add(i, f.x); add(i + 1, f.y); add(i + 2, f.z); add(i + 3, f.w);
        }
#else
        for (int i = 0; i < NV; ++i) add(i, row[i]);
#endif
    };
    auto add_rows = [&](auto& H, int k, float weight, unsigned which) {  // H += J' diag(weight) J, some rows of slot k
        if (k == 0 && joints > 0) {
            float diagonal[COLUMNS];
            put_joint_rows(weight * joint_sign * joint_sign, diagonal);
            EACH_DOF(c, dof) {
                UNROLL
                for (int i = 0; i < NV; ++i) if (KEPT(c, i) && i == dof) H[c][i] += diagonal[c];
            }
            SYNC();
            which = joints < 32 ? which & ~((1u << joints) - 1u) : 0u;
        }
        for (; which; which &= which - 1u) {
            const int q = lowest(which);
            const float* row = &J[(32 * k + q - joints) * LD];
            const float shared_weight = from_lane(weight, q);
            float weights[COLUMNS];
            EACH_DOF(c, dof) weights[c] = shared_weight * (dof < NV ? row[dof] : 0.0f);
            add_outer(H, weights, row);
        }
    };

    {
        float start[SLOTS];
        J_times(a, start);
        UNROLL
        for (int k = 0; k < SLOTS; ++k) if (32 * k + lane < rows) x[k] += start[k];
    }
    float Ma[COLUMNS];
    M_times(a, Ma);

    float factor[COLUMNS][NV];
#if KEEP_H
    float h[COLUMNS][NV];
    set_inertia(h);
#endif
    float g[COLUMNS], p[COLUMNS], Mp[COLUMNS], pivot[COLUMNS], constraint_force[COLUMNS];
    EACH_DOF(c, dof) g[c] = p[c] = Mp[c] = pivot[c] = constraint_force[c] = 0.0f;
    float step = 0.0f, improvement = 0.0f;
    int iteration = 0, overflow = 0;
    const float tolerance = MODEL(opt_tolerance)[0];
    const float ls_tolerance = MODEL(opt_ls_tolerance)[0];

    for (bool first = true;; first = false) {
        // ---- forces and states at x; rows that begin or cease to be quadratic change the Hessian
        bool changed = first;
#if ELLIPTIC
        UNROLL
        for (int k = 0; k < SLOTS; ++k) if (32 * k + lane < rows) xs[32 * k + lane] = x[k];
        SYNC();
#endif
        UNROLL
        for (int k = 0; k < SLOTS; ++k) {
            force[k] = 0.0f;
            if (32 * k >= rows) continue;
            const int r = 32 * k + lane;
            int now = SATISFIED;
            float f = 0.0f;
            if (r < equalities) { f = -D[k] * x[k]; now = QUADRATIC; }
            else if (r < frictions) {
                const float bound = divide(loss[k], D[k]);
                if (x[k] <= -bound) { f = loss[k]; now = LINEAR_BELOW; }
                else if (x[k] >= bound) { f = -loss[k]; now = LINEAR_ABOVE; }
                else { f = -D[k] * x[k]; now = QUADRATIC; }
            }
#if ELLIPTIC
            else if (r < rows && normal[k] >= 0) {
                const int b = normal[k];
                if (b + DIMS(k) - 1 < rows) {
                    const float *fr = friction(r), N = xs[b] * mu[k];
                    float TT = 0.0f;
                    EACH_TANGENT(i, k) TT += xs[b + i] * fr[i - 1] * (xs[b + i] * fr[i - 1]);
                    const float T = TT <= 0.0f ? 0.0f : sqrtf(TT);
                    if (N >= mu[k] * T || (T <= 0.0f && N >= 0.0f)) now = SATISFIED;
                    else if (mu[k] * N + T <= 0.0f || (T <= 0.0f && N < 0.0f)) { f = -D[k] * x[k]; now = QUADRATIC; }
                    else {
                        const float Dm = divide(ROW(d.efc_D)[b], mu[k] * mu[k] * (1.0f + mu[k] * mu[k]));
                        const float push = -Dm * (N - mu[k] * T) * mu[k];
                        f = r == b ? push : -divide(push, T) * (x[k] * fr[r - b - 1] * fr[r - b - 1]);
                        now = CONE;
                    }
                }
            }
#endif
            else if (r < rows && x[k] < 0.0f) { f = -D[k] * x[k]; now = QUADRATIC; }
            force[k] = f;
            const bool flipped = (now == QUADRATIC) != (state[k] == QUADRATIC);
#if ELLIPTIC
            if (ballot(now == CONE || state[k] == CONE) != 0u) changed = true;
#endif
            state[k] = now;
            const unsigned flips = ballot(flipped);
            if (flips) changed = true;
#if KEEP_H
            add_rows(h, k, !flipped ? 0.0f : now == QUADRATIC ? D[k] : -D[k], flips);
#endif
        }

        // ---- gradient
        {
            UNROLL
            for (int k = 0; k < SLOTS; ++k) {
                const int r = 32 * k + lane;
                if (r >= joints && r < rows) forces[r - joints] = force[k];
            }
            if (lane < 4) forces[contacts + lane] = 0.0f;
            put_joint_rows(force[0] * joint_sign, constraint_force);
            EACH_DOF(c, dof) {
                float s = constraint_force[c];
                if (dof < NV) {
                    const float* column = &J[dof];
                    int r = 0;
#if defined(__CUDA_ARCH__)
                    for (; r + 4 <= contacts; r += 4) {
                        const float4 f = *reinterpret_cast<const float4*>(&forces[r]);
                        s += f.x * column[r * LD]; s += f.y * column[(r + 1) * LD];
                        s += f.z * column[(r + 2) * LD]; s += f.w * column[(r + 3) * LD];
                    }
#endif
                    for (; r < contacts; ++r) s += forces[r] * column[r * LD];
                }
                constraint_force[c] = s;
                g[c] = dof < NV ? Ma[c] - smooth[c] - s : 0.0f;
            }
            SYNC();
        }

        // ---- is that the end?
        if (!first) {
            ++iteration;
            const float gained = scale * improvement;
            if (step == 0.0f || (gained > 0.0f && gained < tolerance) || scale * sqrtf(sum_dofs([&](int c, int) { return g[c] * g[c]; })) < tolerance) break;
        }

        // ---- factor H = L D L'
        if (changed) {
#if KEEP_H
            EACH_DOF(c, dof) {
                UNROLL
                for (int i = 0; i < NV; ++i) factor[c][i] = h[c][i];
            }
#else
            set_inertia(factor);
            UNROLL
            for (int k = 0; k < SLOTS; ++k) {
                if (32 * k >= rows) continue;
                const bool quadratic = state[k] == QUADRATIC;
                add_rows(factor, k, quadratic ? D[k] : 0.0f, ballot(quadratic));
            }
#endif
#if ELLIPTIC
            // a sliding contact adds Dm (n n' + (mu^2 - mu N / T) across), n being mu (row 0 - w), w = sum_i e_i z_i the slide's
            // direction in the scaled rows z_i = f_i J_i, and across = sum_i z_i z_i' - w w': b b' for two tangents
            UNROLL
            for (int k = 0; k < SLOTS; ++k) {
                if (32 * k >= rows) continue;
                const int r = 32 * k + lane;
                const bool slides = r < rows && state[k] == CONE && normal[k] == r;
                float Dm = 0.0f, T = 0.0f, sideways = 0.0f;
                if (slides) {
                    EACH_TANGENT(i, k) T += xs[r + i] * friction(r)[i - 1] * (xs[r + i] * friction(r)[i - 1]);
                    T = most(sqrtf(T), 1.0e-15f);
                    Dm = divide(D[k], mu[k] * mu[k] * (1.0f + mu[k] * mu[k]));
                    sideways = mu[k] * mu[k] - mu[k] * (x[k] * mu[k]) / T;
                }
                for (unsigned sliding = ballot(slides); sliding; sliding &= sliding - 1u) {
                    const int q = lowest(sliding), b = 32 * k + q;
                    const float *row = &J[(b - joints) * LD], *fr = friction(b);
                    const float Dq = from_lane(Dm, q), mq = from_lane(mu[k], q), sq = from_lane(sideways, q), Tq = from_lane(T, q);
                    auto add = [&](float scale, auto value) {  // factor += scale v v', v[dof] = value(dof)
                        float weights[COLUMNS];
                        EACH_DOF(c, dof) {
                            const float v = dof < NV ? value(dof) : 0.0f;
                            V[dof] = v;
                            weights[c] = scale * v;
                        }
                        SYNC();
                        add_outer(factor, weights, V);
                        SYNC();
                    };
                    const int tangents = (int)from_lane((float)DIMS(k), q) - 1;
                    float e[CONDIM];
                    UNROLL
                    for (int i = 1; i < CONDIM; ++i) e[i] = i <= tangents ? xs[b + i] * fr[i - 1] / Tq : 0.0f;
                    auto along = [&](int dof) {
                        float w = 0.0f;
                        UNROLL
                        for (int i = 1; i < CONDIM; ++i) if (i <= tangents) w += e[i] * (fr[i - 1] * row[i * LD + dof]);
                        return w;
                    };
                    add(Dq, [&](int dof) { return mq * row[dof] - mq * along(dof); });
#if CONDIM == 3
                    add(Dq * sq, [&](int dof) { return e[1] * (fr[1] * row[2 * LD + dof]) - e[2] * (fr[0] * row[LD + dof]); });
#else
                    for (int i = 1; i <= tangents; ++i) add(Dq * sq, [&](int dof) { return fr[i - 1] * row[i * LD + dof]; });
                    add(-Dq * sq, along);
#endif
                }
            }
#endif
            UNROLL
            for (int k = 0; k < NV; ++k) {
                float* column = V + DOFS * (k & 1);  // the pivot's column, which by symmetry is row k
                EACH_DOF(c, dof) {
                    if (KEPT(c, k)) column[dof] = factor[c][k];
#if COLUMNS > 1
                    if (k < 32 && c > 0 && dof < NV) U[k * UD + dof - 32] = factor[c][k];
#endif
                }
                SYNC();
                const float inverse = 1.0f / column[k];
                float part[COLUMNS];
                EACH_DOF(c, dof) {
                    if (!KEPT(c, k)) continue;
                    if (dof == k) pivot[c] = inverse;
                    part[c] = dof > k ? factor[c][k] * inverse : 0.0f;
                    if (dof > k) factor[c][k] = part[c];
                }
                auto subtract = [&](int i, float entry) {
                    EACH_DOF(c, dof) if (i > k && KEPT(c, i) && KEPT(c, k)) factor[c][i] -= entry * part[c];
                };
#if defined(__CUDA_ARCH__)
                UNROLL
                for (int i = (k + 1) / 4; i < NV4 / 4; ++i) {
                    const float4 f = reinterpret_cast<const float4*>(column)[i];
                    subtract(4 * i, f.x); subtract(4 * i + 1, f.y); subtract(4 * i + 2, f.z); subtract(4 * i + 3, f.w);
                }
#else
                for (int i = k + 1; i < NV; ++i) subtract(i, column[i]);
#endif
            }
            SYNC();
        }

        // ---- direction
        {
            float y[COLUMNS];
            EACH_DOF(c, dof) y[c] = g[c];
            UNROLL
            for (int k = 0; k < NV; ++k) {
                const float yk = from_lane(y[k / 32], k % 32);
                EACH_DOF(c, dof) if (KEPT(c, k) && dof > k) y[c] -= factor[c][k] * yk;
            }
            UNROLL
            for (int i = NV - 1; i >= 0; --i) {
                const float yi = from_lane(y[i / 32] * pivot[i / 32], i % 32);
                EACH_DOF(c, dof) {
                    if (KEPT(c, i)) { if (dof < i) y[c] -= factor[c][i] * yi; }
#if COLUMNS > 1
                    else y[c] -= U[dof * UD + i - 32] * yi;
#endif
                }
            }
            EACH_DOF(c, dof) p[c] = dof < NV ? -y[c] * pivot[c] : 0.0f;
        }
        if (!first && scale * 0.5f * sum_dofs([&](int c, int) { return -p[c] * g[c]; }) < tolerance) break;
        if (iteration >= ITERATIONS) {
            if (!first) overflow |= ITERATIONS_BIT;
            break;
        }

        // ---- line search: cost, slope and curvature at steps t, all rows together
        M_times(p, Mp);
        J_times(p, xp);
#if ELLIPTIC
        // kept by the first row of a contact: its quadratic q0 + q1 t + q2 t^2 when it sticks; N(t) = N + vN t and
        // T(t)^2 = (par + speed t)^2 + perp2 when it slides
        float q0[SLOTS], q1[SLOTS], q2[SLOTS], vN[SLOTS], perp2[SLOTS], par[SLOTS], speed[SLOTS], Dms[SLOTS];
        UNROLL
        for (int k = 0; k < SLOTS; ++k) if (32 * k + lane < rows) ps[32 * k + lane] = xp[k];
        SYNC();
        UNROLL
        for (int k = 0; k < SLOTS; ++k) {
            q0[k] = q1[k] = q2[k] = vN[k] = perp2[k] = par[k] = speed[k] = Dms[k] = 0.0f;
            const int r = 32 * k + lane;
            if (r < rows && normal[k] == r && r + DIMS(k) - 1 < rows) {
                const float* fr = friction(r);
                const float* Dw = ROW(d.efc_D);
                q0[k] = 0.5f * x[k] * D[k] * x[k]; q1[k] = xp[k] * D[k] * x[k]; q2[k] = 0.5f * xp[k] * D[k] * xp[k];
                float uu = 0.0f, uv = 0.0f, vv = 0.0f, crossed = 0.0f;  // crossed = uu vv - uv^2, without its cancellation
                EACH_TANGENT(i, k) {
                    const float xi = xs[r + i], pi = ps[r + i], Di = Dw[r + i], u = xi * fr[i - 1], v = pi * fr[i - 1];
                    q0[k] += 0.5f * xi * Di * xi; q1[k] += pi * Di * xi; q2[k] += 0.5f * pi * Di * pi;
                    uu += u * u; uv += u * v; vv += v * v;
                    UNROLL
                    for (int j = 1; j < i; ++j) {
                        const float cross = u * (ps[r + j] * fr[j - 1]) - xs[r + j] * fr[j - 1] * v;
                        crossed += cross * cross;
                    }
                }
                vN[k] = xp[k] * mu[k];
                perp2[k] = uu;
                if (vv > 0.0f) { speed[k] = sqrtf(vv); par[k] = uv / speed[k]; perp2[k] = crossed / vv; }
                Dms[k] = D[k] / (mu[k] * mu[k] * (1.0f + mu[k] * mu[k]));
            }
        }
#endif
        // the part that is quadratic for every t: inertia and equalities
        float slope0 = 0.0f, half_curve0 = 0.0f;
        EACH_DOF(c, dof) if (dof < NV) { slope0 += p[c] * (Ma[c] - smooth[c]); half_curve0 += 0.5f * p[c] * Mp[c]; }
        float cost = 0.0f, slope = 0.0f, curve = 0.0f;  // of all other rows at t = 0
        UNROLL
        for (int k = 0; k < SLOTS; ++k) {
            const int r = 32 * k + lane;
            const float v = xp[k], vD = v * D[k];
            if (r >= rows) continue;
            if (r < equalities) { slope0 += vD * x[k]; half_curve0 += 0.5f * v * vD; }
            else if (r < frictions) {
                const float bound = divide(loss[k], D[k]);
                if (-bound < x[k] && x[k] < bound) { cost += 0.5f * D[k] * x[k] * x[k]; slope += vD * x[k]; curve += v * vD; }
                else if (x[k] <= -bound) { cost += loss[k] * (-0.5f * bound - x[k]); slope -= loss[k] * v; }
                else { cost += loss[k] * (-0.5f * bound + x[k]); slope += loss[k] * v; }
            }
#if ELLIPTIC
            else if (normal[k] >= 0) {
                if (normal[k] == r) {
                    const float N = x[k] * mu[k], TT = par[k] * par[k] + perp2[k], T = TT <= 0.0f ? 0.0f : sqrtf(TT);
                    const bool opens = TT <= 0.0f ? !(N < 0.0f) : N >= mu[k] * T;
                    if (opens) {}
                    else if (TT <= 0.0f || mu[k] * N + T <= 0.0f) { cost += q0[k]; slope += q1[k]; curve += 2.0f * q2[k]; }
                    else {
                        const float gap = N - mu[k] * T, dT = par[k] * speed[k] / T, dgap = vN[k] - mu[k] * dT;
                        const float ddT = (perp2[k] / (T * T)) * (speed[k] * speed[k] / T);
                        cost += 0.5f * Dms[k] * gap * gap; slope += Dms[k] * gap * dgap;
                        curve += Dms[k] * (dgap * dgap - mu[k] * gap * ddT);
                    }
                }
            }
#endif
            else if (x[k] < 0.0f) { cost += 0.5f * D[k] * x[k] * x[k]; slope += vD * x[k]; curve += v * vD; }
        }
        slope0 = sum(slope0); half_curve0 = sum(half_curve0); cost = sum(cost); slope = sum(slope); curve = sum(curve);

        // C: cost less the cost at 0 without cancellation; S: slope; H: curvature; at each of the steps in ts
        auto search = [&](const auto& ts, auto& C, auto& S, auto& H) {
            constexpr int N_STEPS = sizeof(ts) / sizeof(float);
            UNROLL
            for (int i = 0; i < N_STEPS; ++i) C[i] = S[i] = H[i] = 0.0f;
            UNROLL
            for (int k = 0; k < SLOTS; ++k) {
                const int r = 32 * k + lane;
                if (32 * k >= rows || r < equalities || r >= rows) continue;
                const float v = xp[k], vD = v * D[k], hess = v * vD, vDx = vD * x[k];
                if (r < frictions) {
                    const float f = loss[k], bound = divide(f, D[k]);
                    const float c0 = (-bound < x[k] && x[k] < bound) ? 0.5f * D[k] * x[k] * x[k]
                                     : f * (-0.5f * bound + (x[k] <= -bound ? -x[k] : x[k]));
                    UNROLL
                    for (int i = 0; i < N_STEPS; ++i) {
                        const float y = x[k] + ts[i] * v;
                        if (-bound < y && y < bound) { C[i] += 0.5f * D[k] * y * y - c0; S[i] += vD * y; H[i] += hess; }
                        else if (y <= -bound) { C[i] += f * (-0.5f * bound - y) - c0; S[i] -= f * v; }
                        else { C[i] += f * (-0.5f * bound + y) - c0; S[i] += f * v; }
                    }
                }
#if ELLIPTIC
                else if (normal[k] >= 0) {
                    if (normal[k] != r) continue;
                    const float m = mu[k], N0 = x[k] * m, TT0 = par[k] * par[k] + perp2[k], Dm = Dms[k];
                    const float T0 = TT0 <= 0.0f ? 0.0f : sqrtf(TT0), gap0 = N0 - m * T0, edge0 = m * N0 + T0;
                    int from = SATISFIED;
                    float c0 = 0.0f;
                    if (TT0 <= 0.0f) { if (N0 < 0.0f) { from = QUADRATIC; c0 = q0[k]; } }
                    else if (N0 >= m * T0) {}
                    else if (edge0 <= 0.0f) { from = QUADRATIC; c0 = q0[k]; }
                    else { from = CONE; c0 = 0.5f * Dm * gap0 * gap0; }
                    UNROLL
                    for (int i = 0; i < N_STEPS; ++i) {
                        const float N = N0 + ts[i] * vN[k], w = par[k] + ts[i] * speed[k], TT = w * w + perp2[k];
                        const float T = TT <= 0.0f ? 0.0f : sqrtf(TT), tq = ts[i] * q2[k];
                        if (TT <= 0.0f ? !(N < 0.0f) : N >= m * T) C[i] -= c0;
                        else if (TT <= 0.0f || m * N + T <= 0.0f) {
                            float c = ts[i] * (tq + q1[k]);
                            if (from == CONE) c += 0.5f * Dm * edge0 * edge0;
                            else if (from == SATISFIED) c = 0.5f * Dm * (1.0f + m * m) * (N * N + most(TT, 0.0f));
                            C[i] += c; S[i] += 2.0f * tq + q1[k]; H[i] += 2.0f * q2[k];
                        } else {
                            const float dT = w * speed[k] / T, ddT = (perp2[k] / TT) * (speed[k] * speed[k] / T);
                            const float gap = N - m * T, dgap = vN[k] - m * dT, edge = m * N + T;
                            float c = 0.5f * Dm * gap * gap;
                            if (from == CONE) {
                                const float more = ts[i] * vN[k] - m * (ts[i] * speed[k] * (par[k] + w) / (T + T0));
                                c = 0.5f * Dm * more * (2.0f * gap0 + more);
                            } else if (from == QUADRATIC) c = ts[i] * (tq + q1[k]) - 0.5f * Dm * edge * edge;
                            C[i] += c; S[i] += Dm * gap * dgap; H[i] += Dm * (dgap * dgap - gap * m * ddT);
                        }
                    }
                }
#endif
                else {
                    const float whole = 0.5f * D[k] * x[k] * x[k], c0 = x[k] < 0.0f ? whole : 0.0f, off = whole - c0;
                    UNROLL
                    for (int i = 0; i < N_STEPS; ++i) {
                        const float y = x[k] + ts[i] * v, th = ts[i] * hess;
                        if (y < 0.0f) { C[i] += ts[i] * (vDx + 0.5f * th) + off; S[i] += vDx + th; H[i] += hess; }
                        else C[i] -= c0;
                    }
                }
            }
            UNROLL
            for (int i = 0; i < N_STEPS; ++i) {
                const float tq = ts[i] * half_curve0;
                C[i] = sum(C[i]) + (ts[i] * tq + ts[i] * slope0);
                S[i] = sum(S[i]) + (2.0f * tq + slope0);
                H[i] = sum(H[i]) + 2.0f * half_curve0;
            }
        };
        struct Point { float t, c, s, h; };
        const float gtol = most(tolerance * ls_tolerance * sqrtf(sum_dofs([&](int c, int) { return p[c] * p[c]; })) / scale, 1e-6f);
        // slopes below what rounding leaves of the terms they are sums of count as 0
        const float noise = 8.0f * 1.1920929e-07f * (sqrtf(2.0f * most(cost, 0.0f) * most(curve, 0.0f)) + fabsf(slope0));
        const float accept = most(gtol, noise);
        const Point start = {0.0f, 0.0f, slope + slope0, curve + 2.0f * half_curve0};
        bool found = fabsf(start.s) < noise;
        step = 0.0f;
        improvement = 0.0f;
        if (!found) {
            float ts[1] = {-divide(start.s, start.h)}, C[1], S[1], H[1];
            search(ts, C, S, H);
            const Point newton = {ts[0], C[0], S[0], H[0]};
            if (fabsf(newton.s) < accept && newton.c < 0.0f) {
                found = true;
                step = newton.t;
                improvement = -newton.c;
            } else {
                Point lo = newton.s < start.s ? newton : start, hi = newton.s < start.s ? start : newton;
                for (int i = 0; i < LS_ITERATIONS && !found; ++i) {
                    // Newton steps from both ends, and the middle
                    float ts[3] = {lo.t - divide(lo.s, lo.h), hi.t - divide(hi.s, hi.h), 0.5f * (lo.t + hi.t)}, C[3], S[3], H[3];
                    search(ts, C, S, H);
                    auto at = [&](int j) { return Point{ts[j], C[j], S[j], H[j]}; };
                    bool flat = false, moved = false;
                    Point best = {0.0f, 1e10f, 0.0f, 0.0f};
                    UNROLL
                    for (int j = 0; j < 3; ++j) {
                        if (fabsf(S[j]) < accept && C[j] < 0.0f) {
                            flat = true;
                            if (C[j] < best.c) best = at(j);
                        }
                    }
                    if (flat) lo = hi = best;
                    else {
                        auto nearer = [](float s, float to) { return (s < to && to < 0.0f) || (s > to && to > 0.0f); };
                        if (nearer(lo.s, S[0])) { lo = at(0); moved = true; }
                        if (nearer(lo.s, S[2])) { lo = at(2); moved = true; }
                        if (nearer(lo.s, S[1])) { lo = at(1); moved = true; }
                        if (nearer(hi.s, S[1]) || (hi.s < 0.0f && S[1] > 0.0f)) { hi = at(1); moved = true; }
                        if (nearer(hi.s, S[2])) { hi = at(2); moved = true; }
                        if (nearer(hi.s, S[0])) { hi = at(0); moved = true; }
                    }
                    found = flat || !moved || (lo.c < 0.0f && lo.s < 0.0f && lo.s > -gtol) || (hi.c < 0.0f && hi.s > 0.0f && hi.s < gtol);
                    if (lo.c < 0.0f || hi.c < 0.0f) {
                        step = lo.c < hi.c ? lo.t : hi.t;
                        improvement = lo.c < hi.c ? -lo.c : -hi.c;
                    }
                }
            }
        }
        if (!found) overflow |= LS_ITERATIONS_BIT;

        EACH_DOF(c, dof) { a[c] += step * p[c]; Ma[c] += step * Mp[c]; }
        UNROLL
        for (int k = 0; k < SLOTS; ++k) x[k] += step * xp[k];
    }

    EACH_DOF(c, dof) {
        if (dof >= NV) continue;
        ROW(d.qacc)[dof] = a[c];
        ROW(d.efc_Ma)[dof] = Ma[c];
        ROW(d.qfrc_constraint)[dof] = constraint_force[c];
    }
    UNROLL
    for (int k = 0; k < SLOTS; ++k) {
        const int r = 32 * k + lane;
        if (r < rows) {
            ROW(d.efc_force)[r] = force[k];
            ROW_OF(int, d.efc_state)[r] = state[k];
        }
    }
    if (lane == 0) {
        d.solver_niter.data[world] = iteration;
        if (overflow) d.overflow.data[world] |= overflow;
    }
