// One step of time of a world: Euler or implicitfast, from the solver's acceleration to the next qpos and qvel.
//
//   H x = M qacc     H = M - h dF/dv     v' = v + h x     q' = q (+) h v'
//
// dF/dv are dampers and, if implicitfast, actuators: `forward` wrote -h of it (`implicit_damping`), a diagonal. H has the rows
// of M: row i holds dof i's ancestors, itself last. It is factored from the leaves to the roots, a level of the tree of
// dofs at a time, all elements of a level side by side, the right-hand side as one more column; d runs over descendants:
//
//   H_ij -= sum_d H_di H_dj / H_dd       then from the roots: x_i = (y_i - sum_j H_ij x_j) / H_ii
//
// A body that floats alone (implicitfast) has its own 6 x 6 system with the gyroscopic force's derivative, which is not
// symmetric. Its upper left block is diagonal, so 3 x 3 remain.
//
// Shared memory, in numbers: H NC | D NV inverse diagonal | Y NV right-hand side, then x | V NV

    SHARED float H[NC], D[NV], Y[NV], V[NV];
    const float h = MODEL(opt_timestep)[0];

    FOR_EACH(k, NC) {
        const int i = m.M_hinit_i.data[k];
        H[k] = ROW(d.M)[k] + (i == m.M_colind.data[k] ? ROW(t.implicit_damping)[i] : 0.0f);
    }
    FOR_EACH(i, NV) {
        Y[i] = ROW(d.efc_Ma)[i];
        V[i] = ROW(d.qvel)[i];
        ROW(d.qacc_warmstart)[i] = ROW(d.qacc)[i];
    }
    SYNC();

    // ---- trees, up: t.item_dof and t.item_column list the elements of H by level, the right-hand side after the diagonal;
    // a level with few elements gives each of them several lanes (t.level_share), which split its descendants
    for (int level = LEVELS - 1; level >= 0; --level) {
        const int share = t.level_share.data[level], part = lane % share, end = t.level_item.data[level + 1];
        for (int first = t.level_item.data[level]; first < end; first += 32 / share) {
            const int n = first + lane / share, i = n < end ? t.item_dof.data[n] : 0;
            const int column = n < end ? t.item_column.data[n] : 0, start = m.M_rowadr.data[i], own = m.M_rownnz.data[i] - 1;
            float sum = 0.0f;
            if (n < end)
                for (int k = i + 1 + part; k <= t.dof_last.data[i]; k += share) {
                    const float* row = H + m.M_rowadr.data[k];
                    sum += row[own] * D[k] * (column > own ? Y[k] : row[column]);
                }
            sum = sum_group(sum, share);
            if (n < end && part == 0) {
                if (column > own) Y[i] -= sum;
                else H[start + column] -= sum;
                if (column == own) D[i] = 1.0f / H[start + own];
            }
        }
        SYNC();
    }
    // ---- trees, down: a dof is known once all its ancestors are taken from it (t.dof_level: -1 if of a body that floats alone)
    for (int level = 0; level < LEVELS; ++level) {
        FOR_EACH(i, NV)
            if (t.dof_level.data[i] == level) Y[i] *= D[i];
        SYNC();
        FOR_EACH(i, NV) {
            const int at = m.M_rowadr.data[i] + level;
            if (t.dof_level.data[i] > level) Y[i] -= H[at] * Y[m.M_colind.data[at]];
        }
        SYNC();
    }

    // ---- bodies that float alone
    FOR_EACH(k, NFREE) {
        const int b = t.free.data[k], dof = m.body_dofadr.data[b], at = t.dof_qposadr.data[dof];
        const float* c = ROW(d.crb) + 10 * b;
        float r[9];
        matrix(normalise(load4(ROW(d.qpos) + at + 3)), r);
        const mat33 rotation(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8]);
        const mat33 inertia(c[0], c[3], c[4], c[3], c[1], c[5], c[4], c[5], c[2]);
        const vec3 centre = load3(ROW(d.subtree_com) + 3 * b) - load3(ROW(d.qpos) + at);
        const vec3 w = mul(rotation, load3(V + dof + 3));

        // derivative of the bias force by the angular velocity: `across` on translations, `about` on rotations
        const vec3 spin = mul(inertia, w);
        const mat33 carry = outer(centre, w) - dot(w, centre) * diag(vec3(1.0f)) + skew(cross(w, centre));
        const mat33 across = -c[9] * mul(carry, rotation);
        const mat33 moment = -c[9] * mul(skew(centre), carry) + mul(skew(w), inertia) - skew(spin);
        const mat33 about = mul(transpose(rotation), mul(moment, rotation));

        mat33 right, left, lower;
        vec3 scale;
        for (int row = 0; row < 3; ++row) {
            const int upper_row = dof + row, lower_row = dof + 3 + row;
            const int end = m.M_rowadr.data[lower_row] + m.M_rownnz.data[lower_row] - 1, full = m.M_rownnz.data[lower_row] > 1;
            scale[row] = 1.0f / H[m.M_rowadr.data[upper_row] + m.M_rownnz.data[upper_row] - 1];
            for (int column = 0; column < 3; ++column) {
                left.data[row][column] = full ? H[end - 3 - row + column] : 0.0f;
                if (column <= row) lower.data[row][column] = lower.data[column][row] = column == row || full ? H[end - row + column] : 0.0f;
            }
        }
        right = transpose(left) + h * across;
        lower = lower + h * about;

        const vec3 y = load3(Y + dof), scaled(y[0] * scale[0], y[1] * scale[1], y[2] * scale[2]);
        mat33 rest = lower - mul(mul(left, diag(scale)), right);
        const float size = 1.0f / trace(rest);  // keeps the determinant of a tiny inertia in range
        const vec3 z = size * (load3(Y + dof + 3) - mul(left, scaled));
        rest = size * rest;
        const vec3 c0(rest.data[0][0], rest.data[1][0], rest.data[2][0]), c1(rest.data[0][1], rest.data[1][1], rest.data[2][1]);
        const vec3 c2(rest.data[0][2], rest.data[1][2], rest.data[2][2]);
        const float inverse = 1.0f / dot(c0, cross(c1, c2));
        const vec3 x = inverse * vec3(dot(z, cross(c1, c2)), dot(c0, cross(z, c2)), dot(c0, cross(c1, z)));
        const vec3 back = y - mul(right, x);
        for (int i = 0; i < 3; ++i) {
            Y[dof + i] = scale[i] * back[i];
            Y[dof + 3 + i] = x[i];
        }
    }
    SYNC();

    // ---- velocities, then positions with the new velocities
    FOR_EACH(i, NV) {
        V[i] += h * Y[i];
        ROW(d.qvel)[i] = V[i];
    }
    SYNC();
    FOR_EACH(j, NJNT) {
        const int type = m.jnt_type.data[j];
        const float* v = V + m.jnt_dofadr.data[j];
        float* q = ROW(d.qpos) + m.jnt_qposadr.data[j];
        if (type == FREE) {
            store3(q, load3(q) + h * load3(v));
            q += 3;
            v += 3;
        }
        if (type <= BALL) {
            const vec3 w = load3(v);
            const float speed = length(w);
            const vec3 axis = speed > 0.0f ? w / speed : vec3(0.0f);
            store4(q, normalise(multiply(normalise(load4(q)), axis_angle(axis, h * speed))));
        } else q[0] += h * v[0];
    }
    if (lane == 0) {
        d.time.data[world] += h;
        int bits = 0;
        if (d.nefc.data[world] > NJMAX) bits |= NEFC_BIT;
        if (d.ncollision.data[0] > t.contact_room.data[0]) bits |= BROADPHASE_BIT;
        if (d.nacon.data[0] > t.contact_room.data[0]) bits |= NARROWPHASE_BIT;
        if (bits) d.overflow.data[world] |= bits;
    }
